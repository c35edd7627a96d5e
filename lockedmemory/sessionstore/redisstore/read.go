package redisstore

import (
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func (s *service) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	var page storedriver.Page
	_, err := s.redis.Repeat(ctx, func() error {
		var err error
		page, err = s.read(ctx, r)
		return err
	})
	return page, s.explain(err)
}

func (s *service) read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	k := s.keys(r.Session)
	limit := r.Limit
	name, first, second := "xrange", "-", "+"
	if r.Backward {
		name, first, second = "xrevrange", "+", "-"
	}
	continues := r.From != (lockedmemory.Place{})
	if continues {
		first = "(" + r.From.String()
	} else if r.Backward {
		limit++ // the last entry may be a marker
	}
	// ⚑ The pipeline shows the token before it reads. So no write under a lower token can follow.
	firstAccess := r.Access != nil && r.Access.First
	var page storedriver.Page
	var tokenCall, idCall *redisconn.Call
	var oldest *redis.Cmd
	var entries []*redis.Cmd
	var cmds []redis.Cmder
	if firstAccess {
		keys, args := s.access(*r.Access, false)
		tokenCall = s.scripts.load.Call(ctx, keys, args...)
		cmds = append(cmds, tokenCall)
	}
	// ⚑ The revision is read before the first page, and after each later one.
	mark := redis.NewCmd(ctx, "get", k.mark)
	if !r.Next {
		cmds = append(cmds, mark)
	}
	switch {
	case r.ID != "":
		idCall = s.scripts.answered.Call(ctx, []string{k.log, k.ids}, field(r.ID), r.ID)
		cmds = append(cmds, idCall)
	case r.PinnedOnly:
		for _, p := range r.Pinned {
			entries = append(entries, redis.NewCmd(ctx, "xrange", k.log, p.String(), p.String()))
		}
		r.Limit, limit = len(r.Pinned), -1 // no page follows
	default:
		entries = append(entries, redis.NewCmd(ctx, name, k.log, first, second, "count", limit))
	}
	for _, cmd := range entries {
		cmds = append(cmds, cmd)
	}
	if continues { // after the entries: an entry that was cleared in between is older than the oldest
		oldest = redis.NewCmd(ctx, "xrange", k.log, "-", "+", "count", 1+len(r.Pinned))
		cmds = append(cmds, oldest)
	}
	if r.Next {
		cmds = append(cmds, mark)
	}
	err := s.redis.Send(ctx, k.log, cmds...)
	if err != nil {
		return page, err
	}
	if firstAccess {
		if page.Verdict, err = parseVerdict(tokenCall.Cmd); err != nil || page.Outcome != storedriver.Done {
			return page, err
		}
	}
	if err = parseMark(&page, mark); err != nil {
		return page, err
	}
	if continues {
		if page.Oldest, err = firstPlace(oldest, r.Pinned); err != nil {
			return page, err
		}
	}
	if r.ID != "" {
		var found []any
		if page.Known, found, err = parseAnswered(idCall.Cmd); err == nil {
			page.Entries, _, err = parseEntries(found)
		}
		return page, err
	}
	var found []any
	for _, cmd := range entries {
		some, err := cmd.Slice()
		if err != nil {
			return page, err
		}
		found = append(found, some...)
	}
	return page, fill(&page, found, r.Limit, limit)
}

// parseMark reads the token, the revision and the pinned places in a mark. Without a mark, they are zero.
// lua/session.lua judges the same.
func parseMark(page *storedriver.Page, mark *redis.Cmd) error {
	text, err := mark.Text()
	if errors.Is(err, redis.Nil) {
		return nil
	} else if err != nil {
		return err
	}
	if fields := markForm.FindStringSubmatch(text); fields != nil {
		page.Mark.Fence, _ = strconv.ParseInt(fields[1], 10, 64)
		page.Revision, _ = strconv.ParseInt(fields[2], 10, 64)
		for id := range strings.SplitSeq(fields[3], ",") {
			if place, ok := parsePlace(id); ok {
				page.Pinned = append(page.Pinned, place)
			}
		}
		return nil
	}
	if newerForm.MatchString(text) {
		return markError("NEWER the mark of the session has another form")
	}
	return markError(`WRONGTYPE the key that ends in "mark" is not the mark of a session`)
}

// The forms of a mark, see lua/session.lua.
var (
	markForm  = regexp.MustCompile(`^1:(\d+)-\d+:[el]:[0-9a-f]*:\d*:(\d+):([\d,-]*)$`)
	newerForm = regexp.MustCompile(`^\d+:\d+-\d+:`)
)

// markError is the error that a script would reply.
type markError string

func (e markError) Error() string { return string(e) }
func (markError) RedisError()     {}

// parseAnswered reads the reply of lua/answered.lua.
func parseAnswered(cmd *redis.Cmd) (known bool, entries []any, err error) {
	words, err := cmd.Slice()
	if err != nil {
		return false, nil, err
	}
	reply := replyOf(words)
	known, entries = reply.Number() == 1, reply.List()
	return known, entries, reply.End()
}

// firstPlace is the place of the first entry or marker in a reply of XRANGE that is not pinned. Without
// one, it is a place above all exchanges.
func firstPlace(cmd *redis.Cmd, pinned []lockedmemory.Place) (lockedmemory.Place, error) {
	items, err := cmd.Slice()
	if err != nil {
		return lockedmemory.Place{}, err
	}
	for _, item := range items {
		place, _, err := parseItem(item)
		if err != nil {
			return place, err
		}
		if !slices.Contains(pinned, place) {
			return place, nil
		}
	}
	return lockedmemory.Place{Fence: math.MaxInt64}, nil
}

// fill puts the entries of a reply into the page, without the markers. asked is the COUNT of the
// request.
func fill(page *storedriver.Page, found []any, limit, asked int) error {
	entries, last, err := parseEntries(found)
	if err != nil {
		return err
	}
	page.Entries = entries
	switch {
	case len(entries) > limit:
		page.Entries = entries[:limit]
		page.Last = entries[limit-1].Place
	case len(found) == asked:
		page.Last = last
	}
	return nil
}

// parseEntries reads the reply of XRANGE. It leaves out the markers; last may be one.
func parseEntries(found []any) (entries []storedriver.Entry, last lockedmemory.Place, err error) {
	entries = make([]storedriver.Entry, 0, len(found))
	for _, item := range found {
		var fields []any
		if last, fields, err = parseItem(item); err != nil {
			return nil, last, err
		}
		if e, isMarker := parseEntry(last, fields); !isMarker {
			entries = append(entries, e)
		}
	}
	return entries, last, nil
}

// parseItem reads the place and the fields of an item in a reply of XRANGE.
func parseItem(item any) (place lockedmemory.Place, fields []any, err error) {
	pair, _ := item.([]any)
	if len(pair) != 2 {
		return place, nil, errReply
	}
	id, _ := pair[0].(string)
	place, ok := parsePlace(id)
	if !ok {
		return place, nil, errReply
	}
	fields, _ = pair[1].([]any)
	return place, fields, nil
}

var (
	errFields  = errors.New("its fields are not those of a Save: another program has written it, or a newer version of this library")
	errMissing = errors.New("it has no message")
)

func parseEntry(place lockedmemory.Place, fields []any) (e storedriver.Entry, isMarker bool) {
	e.Place = place
	text := func(i int) string { s, _ := fields[i].(string); return s }
	if len(fields) == 2 && (text(0) == "mark" && text(1) == "" || text(0) == "swap" && len(text(1)) == 32) {
		return e, true
	}
	if len(fields) < 2 || len(fields)%2 != 0 || text(0) != "op" || place.Fence > driver.MaxFence {
		return broken(place, fields, errFields), false
	}
	n := len(fields)
	if n >= 4 && text(n-2) == "pin" {
		e.Pinned = true
		n -= 2
	}
	if n >= 4 && text(n-2) == "id" {
		if e.ID = text(n - 1); e.ID == "" {
			return broken(place, fields, errFields), false
		}
		n -= 2
	}
	for i := 2; i < n; i += 2 {
		if text(i) != "m" {
			return broken(place, fields, errFields), false
		}
		e.Messages = append(e.Messages, []byte(text(i+1)))
	}
	if len(e.Messages) == 0 {
		return broken(place, fields, errMissing), false
	}
	return e, false
}

func broken(place lockedmemory.Place, fields []any, err error) storedriver.Entry {
	e := storedriver.Entry{Place: place, Err: err}
	for _, field := range fields {
		text, _ := field.(string)
		e.Size += len(text)
	}
	return e
}
