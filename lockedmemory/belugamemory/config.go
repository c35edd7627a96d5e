package belugamemory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

const defaultTimeout = 5 * time.Second

// configuration holds the settings of a ProviderConfig.
type configuration struct {
	url        string
	storeURL   string // of the sessions; empty: they are where the locks are
	timeout    time.Duration
	lock       distlock.Options
	maxRetries int
	retryDelay time.Duration
	keep       sessionstore.Retention
	store      sessionstore.Options
	settings

	inner        string
	innerOptions map[string]any
}

// option describes one entry of the Options of a ProviderConfig.
type option struct {
	allowed string // continues "must be"
	private bool   // errors do not show the value
	set     func(value any) (ok bool)
}

// options returns all options by name. Their functions set the fields of c.
func (c *configuration) options() map[string]option {
	return map[string]option{
		"busy": {allowed: `"queue" or "refuse"`, set: func(value any) bool {
			if value == "refuse" {
				c.Busy = lockedmemory.Refuse
			}
			return value == "queue" || value == "refuse"
		}},
		"idle_ttl": {
			allowed: `a duration as text, such as "720h", of 1s to 87600h, in whole milliseconds: leave it out for no limit`,
			set: func(value any) bool {
				return duration(&c.keep.IdleTTL, time.Second, 87600*time.Hour)(value) && c.keep.IdleTTL%time.Millisecond == 0
			}},
		"inner": {
			allowed: "another registered memory (" + strings.Join(memory.List(), ", ") +
				"): leave it out for the session store",
			set: func(value any) bool {
				return as(&c.inner)(value) && c.inner != Name && slices.Contains(memory.List(), c.inner)
			}},
		"inner_options":            {allowed: "an object, for the inner memory", private: true, set: as(&c.innerOptions)},
		"inner_separates_sessions": {allowed: "true or false", set: as(&c.innerSeparates)},
		"max_exchanges": {allowed: "a whole number of 1 to 1000000000: leave it out to keep all",
			set: number(&c.keep.MaxExchanges, 1_000_000_000)},
		"max_hold": {allowed: `a duration as text, such as "10m", of 1s or more: leave it out for no bound`,
			set: duration(&c.lock.MaxHold, time.Second, math.MaxInt64)},
		"max_retries": {allowed: "a whole number of 1 to 1000000", set: number(&c.maxRetries, 1_000_000)},
		"namespace": {allowed: "text of 1 to 100 bytes, without braces and control characters",
			set: text(&c.lock.Namespace, 100, "{}")},
		"retry_delay": {allowed: `a duration as text, such as "100ms", of 1ms to 1h`,
			set: duration(&c.retryDelay, time.Millisecond, time.Hour)},
		"session_id": {allowed: "text of 1 to 512 bytes, without control characters: leave it out for that of the context",
			private: true, set: text(&c.sessionID, 512, "")},
		"store": {allowed: `the URL of one Redis or PostgreSQL, such as "postgres://localhost/chat": ` +
			`leave it out for that of base_url`,
			private: true, set: func(value any) bool {
				url, _ := value.(string)
				c.storeURL = url
				return url != "" && !strings.HasPrefix(url, "mem:") && !strings.HasPrefix(url, "redlock+")
			}},
		"ttl": {allowed: `a duration as text, such as "30s", of 100ms or more`,
			set: duration(&c.lock.TTL, distlock.MinTTL, math.MaxInt64)},
		"wait": {allowed: `a duration as text, such as "5s", of 1ms or more, or "-1s" to wait as long as the context allows`,
			set: func(value any) bool {
				return duration(&c.lock.Wait, time.Millisecond, math.MaxInt64)(value) || c.lock.Wait < 0
			}},
		"window": {allowed: "a whole number of 1 or more: leave it out to load all",
			set: number(&c.store.Window, math.MaxInt32)},
	}
}

func as[T any](field *T) func(any) bool {
	return func(value any) (ok bool) {
		*field, ok = value.(T)
		return ok
	}
}

func text(field *string, most int, without string) func(any) bool {
	return func(value any) bool {
		return as(field)(value) && *field != "" && len(*field) <= most && utf8.ValidString(*field) &&
			!strings.ContainsFunc(*field, unicode.IsControl) && !strings.ContainsAny(*field, without)
	}
}

// duration accepts a time.Duration and its text, as in JSON, which fmt.Sprint makes the same.
func duration(field *time.Duration, least, most time.Duration) func(any) bool {
	return func(value any) bool {
		d, err := time.ParseDuration(fmt.Sprint(value))
		*field = d
		return err == nil && d >= least && d <= most
	}
}

// number accepts the numbers of JSON and the common integer types of Go.
func number(field *int, most float64) func(any) bool {
	return func(value any) bool {
		switch value.(type) {
		case int, int32, int64, float64, json.Number:
			n, err := strconv.ParseFloat(fmt.Sprint(value), 64)
			*field = int(n)
			return err == nil && n == math.Trunc(n) && n >= 1 && n <= most
		}
		return false
	}
}

func parse(cfg config.ProviderConfig) (configuration, error) {
	c := configuration{url: cfg.BaseURL, timeout: cmp.Or(cfg.Timeout, defaultTimeout)}
	switch {
	case cfg.BaseURL == "":
		return c, codes.Invalid(`base_url is missing: write where the locks are, as "redis://localhost:6379" ` +
			`or "postgres://localhost/chat", or "mem://" for a single process`)
	case cfg.APIKey != "":
		return c, codes.Invalid("api_key has no meaning here: write user:password@ before the host in base_url")
	case cfg.Timeout < 0:
		return c, codes.Invalid("timeout is %s, but must be positive: leave it out for %s", cfg.Timeout, defaultTimeout)
	}
	options := c.options()
	for _, name := range slices.Sorted(maps.Keys(cfg.Options)) { // the same mistakes give the same error
		o, known := options[name]
		if !known {
			names := slices.Sorted(maps.Keys(options))
			return c, codes.Invalid("option %q is not known: the options are %s", name, strings.Join(names, ", "))
		}
		if value := cfg.Options[name]; value != nil && !o.set(value) {
			return c, codes.Invalid("option %q is %s, but must be %s", name, o.shown(value), o.allowed)
		}
	}
	return c, c.settle()
}

// settle refuses options that exclude each other, and derives the settings.
func (c *configuration) settle() error {
	switch {
	case c.lock.Wait != 0 && (c.maxRetries != 0 || c.retryDelay != 0):
		return codes.Invalid(`option "wait" does not go with "max_retries" and "retry_delay", whose product is the same: ` +
			`leave one or the other out`)
	case c.inner == "" && (c.innerOptions != nil || c.innerSeparates):
		return codes.Invalid(`options "inner_options" and "inner_separates_sessions" are for the memory that "inner" ` +
			`names: name it, or leave them out`)
	case c.inner != "" && (c.store.Window != 0 || c.keep.MaxExchanges != 0 || c.keep.IdleTTL != 0 || c.storeURL != ""):
		return codes.Invalid(`options "store", "window", "max_exchanges" and "idle_ttl" are those of the session store, ` +
			`and "inner" is another memory: leave out one or the other`)
	}
	if c.maxRetries != 0 || c.retryDelay != 0 {
		c.lock.Wait = time.Duration(cmp.Or(c.maxRetries, 3)) * cmp.Or(c.retryDelay, 100*time.Millisecond)
	}
	c.Wait = c.lock.Wait
	c.keep = c.keep.Beside(c.lock.Namespace)
	return c.chooseKey(c.inner != "")
}

// shown returns the text for a wrong value in an error.
func (o option) shown(value any) string {
	if !o.private {
		switch v := value.(type) {
		case string:
			return fmt.Sprintf("%.100q", v)
		case bool, int, int32, int64, float64, json.Number, time.Duration:
			return fmt.Sprintf("%v (%T)", v, v)
		}
	}
	return fmt.Sprintf("a %T", value)
}
