//go:build linux

// Package flocklock keeps locks in a directory of files, for the processes of one user on one
// machine. It is a toy that shows how small a driver can be: see docs/howto/new-backend.md.
//
// Each name has one file with its record in JSON. A call locks the directory with flock, and renames the
// new record over the old one. The directory has to exist on a local file system. The driver never removes
// the file of a name.
package flocklock

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// New makes a Locker that keeps its locks in dir. It does no I/O.
func New(dir string, opts *distlock.Options) (*distlock.Locker, error) {
	return distlock.New(NewDriver(dir), opts)
}

// Driver keeps locks in a directory.
type Driver struct {
	dir   string
	steps sync.WaitGroup // the steps under way
}

// NewDriver makes a driver that keeps its locks in dir. It does no I/O.
func NewDriver(dir string) *Driver { return &Driver{dir: dir} }

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "flock", AcrossProcesses: true}
}

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	return step(ctx, d, req.Name, func(r *record, now int64) (driver.AcquireReply, bool, error) {
		reply := r.acquire(req, now)
		return reply, reply.Outcome == driver.Granted, nil
	})
}

// Raise implements driver.Driver.
func (d *Driver) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	return step(ctx, d, req.Name, func(r *record, now int64) (driver.RaiseReply, bool, error) {
		return r.raise(req, now)
	})
}

// Extend implements driver.Driver. Each request has a step of its own.
func (d *Driver) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	for i, req := range reqs {
		held, err := step(ctx, d, req.Name, func(r *record, now int64) (bool, bool, error) {
			held := r.extend(req, now)
			return held, held, nil
		})
		replies[i] = driver.ExtendReply{Held: held, Err: err}
	}
	return replies
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	return step(ctx, d, req.Name, func(r *record, now int64) (driver.ReleaseReply, bool, error) {
		changed := r.release(req, now)
		return driver.ReleaseReply{Released: r.Released == req.Owner}, changed, nil
	})
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	return step(ctx, d, name, func(r *record, now int64) (driver.State, bool, error) {
		return r.state(now), false, nil
	})
}

// Close waits for the steps whose callers have left.
func (d *Driver) Close() error {
	d.steps.Wait()
	return nil
}

// file returns the path of the file of a name.
func (d *Driver) file(name driver.Name) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(name.Namespace), name.Namespace, name.Key))
	return filepath.Join(d.dir, fmt.Sprintf("%x.json", sum))
}

// step locks the directory, has decide change the record of a name, and stores a changed record.
// The caller leaves when ctx ends; a step that has begun goes on.
func step[T any](ctx context.Context, d *Driver, name driver.Name,
	decide func(r *record, now int64) (reply T, changed bool, err error),
) (T, error) {
	type result struct {
		reply T
		err   error
	}
	dir, err := lock(ctx, d.dir)
	if err != nil {
		return *new(T), err
	}
	done := make(chan result, 1)
	d.steps.Go(func() {
		defer dir.Close() // unlocks
		r, err := read(d.file(name))
		if err != nil {
			done <- result{err: err}
			return
		}
		now := time.Now().UnixMicro()
		reply, changed, err := decide(r, now)
		if err == nil && changed {
			err = r.write(d.file(name), now)
		}
		if err != nil {
			reply = *new(T)
		}
		done <- result{reply, err}
	})
	select {
	case got := <-done:
		return got.reply, got.err
	case <-ctx.Done():
		return *new(T), fmt.Errorf("flocklock: no answer yet: %w", ctx.Err())
	}
}

// lock opens the directory and locks it. A lock of one file would not do: a rename replaces the file.
func lock(ctx context.Context, path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, notDone(err)
	}
	for {
		err := ctx.Err()
		if err == nil {
			err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = dir.Close()
			return nil, notDone(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// notDone gives an error before the rename its kind: the step had no effect.
func notDone(err error) error {
	kind := driver.ErrNotDone
	switch {
	case errors.Is(err, fs.ErrPermission):
		kind = driver.ErrRights
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOLCK):
		kind = driver.ErrTemporary
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS),
		errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = driver.ErrRefused
	}
	return fmt.Errorf("flocklock: %w: %w", kind, err)
}

// format marks the records of this driver.
const format = "flocklock/1"

// record is the content of a file. Moments and tokens are microseconds since the Unix epoch.
type record struct {
	Format         string
	Held           bool   // a grant began and was not released; it has ended if Expires has passed
	Owner, Holder  string // of the last grant, also after its end
	Metadata       map[string]string
	Fence, Last    int64 // the token of the grant, and the highest token reserved so far
	Since, Expires int64
	Released       string           // the last owner that was released
	Tombstones     map[string]int64 // owner → end
}

// read returns the record in a file. A missing or an empty file is a new record.
func read(path string) (*record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("flocklock: %w: %w", driver.ErrForeign, err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, notDone(err)
	}
	r := &record{}
	if len(data) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(data, r); err != nil || r.Format != format {
		return nil, fmt.Errorf("flocklock: %w: the file %s", driver.ErrForeign, path)
	}
	return r, nil
}

// write replaces the file at path, in the locked directory. A crash leaves the old record or
// the new one.
func (r *record) write(path string, now int64) error {
	r.Format = format
	for owner, end := range r.Tombstones {
		if end <= now {
			delete(r.Tombstones, owner)
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return notDone(err)
	}
	next := path + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return notDone(err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return notDone(err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("flocklock: the outcome is unknown: %w", err)
	}
	return nil
}

// acquire decides an Acquire at the moment now.
func (r *record) acquire(req driver.AcquireRequest, now int64) driver.AcquireReply {
	held := r.Held && now < r.Expires
	switch {
	case r.Tombstones[req.Owner] > now, r.Released == req.Owner, !held && r.Owner == req.Owner:
		return driver.AcquireReply{Outcome: driver.Cancelled}
	case held && r.Owner != req.Owner:
		return driver.AcquireReply{Outcome: driver.Busy, State: r.state(now)}
	case held: // a copy of the request: it gets the same tokens, and shortens nothing
		r.Expires = max(r.Expires, now+req.TTL.Microseconds())
	default:
		r.Held, r.Owner, r.Holder, r.Metadata = true, req.Owner, req.Holder, req.Metadata
		r.Since, r.Expires = now, now+req.TTL.Microseconds()
		r.mint(0, now)
	}
	return driver.AcquireReply{Outcome: driver.Granted, Fence: r.Fence, FenceEnd: r.Last}
}

// raise decides a Raise at the moment now.
func (r *record) raise(req driver.RaiseRequest, now int64) (reply driver.RaiseReply, changed bool, err error) {
	switch {
	case req.Floor > now+driver.FloorAhead.Microseconds():
		return reply, false, fmt.Errorf("flocklock: %w", driver.ErrFloor)
	case !r.heldBy(req.Owner, now):
		return reply, false, nil
	case req.Floor > r.Fence:
		r.mint(req.Floor, now)
		changed = true
	}
	return driver.RaiseReply{Held: true, Fence: r.Fence, FenceEnd: r.Last}, changed, nil
}

// extend decides an ExtendRequest at the moment now.
func (r *record) extend(req driver.ExtendRequest, now int64) (held bool) {
	if !r.heldBy(req.Owner, now) {
		return false
	}
	r.Expires = max(r.Expires, now+req.TTL.Microseconds())
	return true
}

// release decides a Release at the moment now.
func (r *record) release(req driver.ReleaseRequest, now int64) (changed bool) {
	if req.Tombstone > 0 {
		if r.Tombstones == nil {
			r.Tombstones = map[string]int64{}
		}
		r.Tombstones[req.Owner] = max(r.Tombstones[req.Owner], now+req.Tombstone.Microseconds())
		changed = true
	}
	if r.heldBy(req.Owner, now) {
		r.Held, r.Released = false, req.Owner
		changed = true
	}
	return changed
}

// heldBy reports whether the owner holds the name.
func (r *record) heldBy(owner string, now int64) bool {
	return r.Held && now < r.Expires && r.Owner == owner
}

// mint reserves a block of tokens for the grant.
func (r *record) mint(floor, now int64) {
	r.Fence = max(r.Last+1, now, floor)
	r.Last = max(r.Fence, now+driver.FenceBlock)
}

// state is the zero State if the name is free.
func (r *record) state(now int64) driver.State {
	if !r.Held || now >= r.Expires {
		return driver.State{}
	}
	return driver.State{
		Held: true, Holder: r.Holder, Fence: r.Fence, Metadata: r.Metadata,
		Age: time.Duration(now-r.Since) * time.Microsecond, TTL: time.Duration(r.Expires-now) * time.Microsecond,
	}
}
