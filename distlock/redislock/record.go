package redislock

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The header of a record:
//
//	1–2     b2
//	3       h held, r released; H, R: flagged
//	4       ending of the previous owner: ! released, . not
//	5–36    owner
//	37–68   previous owner; zeros: none
//	69–84   token
//	85–100  last token of the block
//	101–111 keep, ms
//
// The payload follows. docs/design/redis.md describes the record.
const (
	ownerLen  = 32
	headerLen = 111
)

// grantKeep is the keep of a grant whose tokens begin at the clock.
const grantKeep = driver.FenceKeep + time.Duration(driver.FenceBlock)*time.Microsecond

// constants replaces names in the scripts: a column becomes its first and its last byte. ⚑ As local variables
// of Lua they would cost a tenth of the time of an acquire.
var constants = strings.NewReplacer(
	"AT_ENDING", "4, 4", "AT_OWNER", "5, 36", "AT_PREVIOUS", "37, 68",
	"AT_TOKEN", "69, 84", "AT_LAST", "85, 100", "AT_KEEP", "101, 111",
	"BEFORE_STATE", "2", "AFTER_STATE", "4, 111", "FIRST_DIGIT", "69", "HEADER_LEN", "111",
	"FENCE_KEEP", fmt.Sprint(driver.FenceKeep.Milliseconds()),
	"FENCE_BLOCK", fmt.Sprint(driver.FenceBlock), // µs
	"GRANT_KEEP", fmt.Sprint(grantKeep.Milliseconds()), "KEEP_DIGITS", fmt.Sprintf("'%011d'", grantKeep.Milliseconds()),
)

// record is what Redis keeps of a name, apart from its queue and its tombstones.
type record struct {
	held, flagged   bool // held is the stored state, also after the TTL
	owner, previous string
	token, last     int64
	keep            time.Duration
	payload         string
}

// parseRecord fails with driver.ErrForeign if the text is no record.
func parseRecord(text string) (r record, err error) {
	if len(text) < headerLen || !strings.HasPrefix(text, "b2") ||
		!strings.Contains("hrHR", text[2:3]) || !strings.Contains("!.", text[3:4]) {
		return r, foreign(errors.New("its value is no record of this library"))
	}
	r.held, r.flagged = strings.EqualFold(text[2:3], "h"), text[2] < 'a'
	r.owner, r.previous, r.payload = text[4:36], text[36:68], text[headerLen:]
	numbers, err := parseNumbers(text[68:84], text[84:100], text[100:headerLen])
	if err != nil {
		return record{}, foreign(errors.New("its record has a damaged number"))
	}
	r.token, r.last, r.keep = numbers[0], numbers[1], time.Duration(numbers[2])*time.Millisecond
	if r.token > r.last || r.last > driver.MaxFence {
		return record{}, foreign(errors.New("its record has a token out of range"))
	}
	return r, nil
}

// foreign is the error for data that another program has put in the place of a lock.
func foreign(cause error) error {
	return fmt.Errorf("redislock: %w: choose another Namespace, or remove the Redis key: %w", driver.ErrForeign, cause)
}

// parseNumbers reads three numbers of digits alone.
func parseNumbers(a, b, c string) (numbers [3]int64, err error) {
	for i, part := range [...]string{a, b, c} {
		n, wrong := strconv.ParseUint(part, 10, 63)
		numbers[i], err = int64(n), cmp.Or(err, wrong)
	}
	return numbers, err
}

// state shows the record, whose key has the given TTL, at a moment of the server's clock in µs. An
// expired or released record is free.
func (r record) state(ttl time.Duration, now int64, waiters int) (driver.State, error) {
	left := ttl - r.keep // negative if it was restored without a TTL
	if !r.held || ttl >= 0 && left <= 0 {
		return driver.State{}, nil
	}
	var shown payload
	if json.Unmarshal([]byte(r.payload), &shown) != nil {
		return driver.State{}, foreign(errors.New("its record has a damaged payload"))
	}
	since := r.last - driver.FenceBlock
	if r.token == r.last { // a token ahead of the clock, by the surplus of keep
		since = r.last - (r.keep - driver.FenceKeep).Microseconds()
	} else if shown.Asked > 0 { // the last token is that of the ask
		since = r.token
	}
	return driver.State{
		Held: true, Holder: shown.Holder, Metadata: shown.Metadata, Fence: max(r.token, shown.Asked), TTL: left, Waiters: waiters,
		Age: max(0, time.Duration(now-since)*time.Microsecond),
	}, nil
}
