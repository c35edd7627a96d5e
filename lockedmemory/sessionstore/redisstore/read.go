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
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func (s *sessions) Read(ctx context.Context, r storedriver.Read) (page storedriver.Page, err error) {
	_, err = s.redis.Repeat(ctx, func() (err error) {
		page, err = s.read(ctx, r)
		return err
	})
	return page, s.explain(err)
}

func (s *sessions) read(ctx context.Context, r storedriver.Read) (page storedriver.Page, err error) {
	k := s.keys(r.Session)
	var cmds []redis.Cmder
	var parsers []func() error // of the replies to cmds
	add := func(cmd redis.Cmder, parse func() error) {
		cmds, parsers = append(cmds, cmd), append(parsers, parse)
	}
	// ⚑ The pipeline shows the token before it reads. So no write under a lower token can follow.
	if r.FirstAccess {
		keys, args := s.access(r.Access, "", false)
		load := s.scripts.load.Command(ctx, keys, args...)
		add(load, func() (err error) { page.Verdict, _, err = parseVerdict(load.Cmd); return err })
	}
	// ⚑ The revision is read before the first page, and after each later one. A first page that is read backward
	// may lack pinned entries: they are those of its moment if the revision behind it is the same.
	mark, behind := redis.NewCmd(ctx, "get", k.mark), redis.NewCmd(ctx, "get", k.mark)
	if !r.Next {
		add(mark, func() error { return parseMark(&page, mark) })
	}
	switch {
	case r.ID != "":
		answered := s.scripts.answered.Command(ctx, []string{k.log, k.ids}, field(r.ID), r.ID)
		add(answered, func() error { return parseAnswered(&page, answered.Cmd) })
	case r.PinnedOnly:
		for _, p := range r.Pinned {
			entry := redis.NewCmd(ctx, "xrange", k.log, p.String(), p.String())
			add(entry, func() error { return fill(&page, entry, len(r.Pinned), -1) }) // no page follows
		}
	default:
		name, first, last, count := "xrange", "-", "+", r.Limit
		if r.Backward {
			name, first, last = "xrevrange", "+", "-"
			count++ // the last entry may be a marker
		}
		if r.From != (lockedmemory.Place{}) {
			first, count = "("+r.From.String(), r.Limit
		}
		entries := redis.NewCmd(ctx, name, k.log, first, last, "count", count)
		add(entries, func() error { return fill(&page, entries, r.Limit, count) })
	}
	// After the entries: an entry that was cleared in between is older than the oldest.
	if r.From != (lockedmemory.Place{}) {
		oldest := redis.NewCmd(ctx, "xrange", k.log, "-", "+", "count", 1+len(r.Pinned))
		add(oldest, func() (err error) { page.Oldest, err = firstPlace(oldest, r.Pinned); return err })
	}
	switch {
	case r.Next:
		add(mark, func() error { return parseMark(&page, mark) })
	case r.Backward:
		add(behind, func() error {
			var after storedriver.Page
			err := parseMark(&after, behind)
			page.Changed = after.Revision != page.Revision
			return err
		})
	}
	if err := s.redis.Send(ctx, k.log, cmds...); err != nil {
		return page, err
	}
	for _, parse := range parsers {
		if err := parse(); err != nil || page.Outcome != storedriver.Done {
			return page, err
		}
	}
	return page, nil
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
	markForm  = regexp.MustCompile(`^1:(\d+)-\d+:[el]:[0-9a-f]*:\d*(?:/\d+)?:(\d+):([\d,-]*)$`)
	newerForm = regexp.MustCompile(`^\d+:\d+-\d+:`)
)

// markError is the error that a script would reply.
type markError string

func (e markError) Error() string { return string(e) }
func (markError) RedisError()     {}

// parseAnswered reads the reply of lua/answered.lua.
func parseAnswered(page *storedriver.Page, cmd *redis.Cmd) error {
	words, err := cmd.Slice()
	if err != nil {
		return err
	}
	reply := replyOf(words)
	outcome := storedriver.Outcome(reply.Number())
	if page.Known = outcome == storedriver.Known; !page.Known {
		page.Outcome = outcome
	}
	if page.Entries, _, err = parseEntries(reply.List()); err != nil {
		return err
	}
	return reply.End()
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

// fill adds the entries of a reply to the page, without the markers. asked is the COUNT of the request.
func fill(page *storedriver.Page, cmd *redis.Cmd, limit, asked int) error {
	found, err := cmd.Slice()
	if err != nil {
		return err
	}
	entries, last, err := parseEntries(found)
	if err != nil {
		return err
	}
	page.Entries = append(page.Entries, entries...)
	switch {
	case len(page.Entries) > limit:
		page.Entries = page.Entries[:limit]
		page.Last = page.Entries[limit-1].Place
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

var errFields = errors.New("its fields are not those of a Save: another program has written it, or a newer version of this library")

func parseEntry(place lockedmemory.Place, fields []any) (e storedriver.Entry, isMarker bool) {
	e.Place = place
	text := func(i int) string { s, _ := fields[i].(string); return s }
	if len(fields) == 2 && (text(0) == "mark" && text(1) == "" || text(0) == "swap" && len(text(1)) == 32) {
		return e, true
	}
	if len(fields) < 2 || len(fields)%2 != 0 || text(0) != "op" || place.Fence > driver.MaxFence {
		return broken(place, fields), false
	}
	n := len(fields)
	if n >= 4 && text(n-2) == "pin" {
		e.Pinned = true
		n -= 2
	}
	for ; n >= 4 && text(n-2) == "id" && text(n-1) != ""; n -= 2 {
		if e.ID != "" {
			e.Also = append(e.Also, e.ID)
		}
		e.ID = text(n - 1)
	}
	slices.Reverse(e.Also)
	for i := 2; i < n && text(i) == "m"; i += 2 {
		e.Messages = append(e.Messages, []byte(text(i+1)))
	}
	if len(e.Messages) == 0 || len(e.Messages) != n/2-1 {
		return broken(place, fields), false
	}
	return e, false
}

func broken(place lockedmemory.Place, fields []any) storedriver.Entry {
	e := storedriver.Entry{Place: place, Err: errFields}
	for _, field := range fields {
		text, _ := field.(string)
		e.Size += len(text)
	}
	return e
}
