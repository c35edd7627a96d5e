package belugamemory

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Defaults of a configuration; the others are those of distlock and sessionstore.
const (
	defaultTimeout    = 5 * time.Second
	defaultMaxRetries = 3
	defaultRetryDelay = 100 * time.Millisecond
)

// configuration is what a ProviderConfig says.
type configuration struct {
	url     string
	timeout time.Duration

	inner        string
	innerOptions map[string]any
	sessionID    string
	namespace    string
	ttl          time.Duration
	wait         time.Duration
	maxRetries   int
	retryDelay   time.Duration
	maxHold      time.Duration
	busy         lockedmemory.BusyPolicy
	window       int
	maxTurns     int
	idleTTL      time.Duration
}

// option is one that a ProviderConfig may have.
type option struct {
	name    string
	allowed string // continues "must be"
	private bool   // its value is not to be shown
	set     func(c *configuration, value any) (ok bool)
}

// options are all of them, by name.
var options = []option{
	{name: "busy", allowed: `"wait" or "refuse"`,
		set: func(c *configuration, value any) bool {
			c.busy = lockedmemory.Wait
			if value == "refuse" {
				c.busy = lockedmemory.Refuse
			}
			return value == "wait" || value == "refuse"
		}},
	{name: "idle_ttl",
		allowed: `a duration as text, such as "720h", of 1s to 87600h, in whole milliseconds: leave it out to keep sessions for ever`,
		set: func(c *configuration, value any) bool {
			return duration(time.Second, 87600*time.Hour, func(c *configuration) *time.Duration { return &c.idleTTL })(c, value) &&
				c.idleTTL%time.Millisecond == 0
		}},
	{name: "inner", allowed: `the name of another registered memory: leave it out for the session store`,
		set: func(c *configuration, value any) bool {
			c.inner, _ = value.(string)
			return c.inner != Name && slices.Contains(memory.List(), c.inner)
		}},
	{name: "inner_options", allowed: "an object: the options of the inner memory", private: true,
		set: func(c *configuration, value any) (ok bool) {
			c.innerOptions, ok = value.(map[string]any)
			return ok
		}},
	{name: "max_exchanges", allowed: "a whole number of 1 to 1000000000: leave it out to keep all",
		set: number(1_000_000_000, func(c *configuration) *int { return &c.maxTurns })},
	{name: "max_hold", allowed: `a duration as text, such as "10m", of 1s or more: leave it out for no bound`,
		set: duration(time.Second, math.MaxInt64, func(c *configuration) *time.Duration { return &c.maxHold })},
	{name: "max_retries", allowed: "a whole number of 1 to 1000000",
		set: number(1_000_000, func(c *configuration) *int { return &c.maxRetries })},
	{name: "namespace", allowed: "text of 1 to 100 bytes, without braces and control characters",
		set: func(c *configuration, value any) bool {
			c.namespace, _ = value.(string)
			return c.namespace != "" && len(c.namespace) <= 100 && utf8.ValidString(c.namespace) &&
				!strings.ContainsAny(c.namespace, "{}") && !strings.ContainsFunc(c.namespace, unicode.IsControl)
		}},
	{name: "retry_delay", allowed: `a duration as text, such as "100ms", of 1ms to 1h`,
		set: duration(time.Millisecond, time.Hour, func(c *configuration) *time.Duration { return &c.retryDelay })},
	{name: "session_id", private: true,
		allowed: "text of 1 to 512 bytes, without control characters: leave it out to use the session of the context",
		set: func(c *configuration, value any) bool {
			c.sessionID, _ = value.(string)
			return c.sessionID != "" && len(c.sessionID) <= 512 && utf8.ValidString(c.sessionID) &&
				!strings.ContainsFunc(c.sessionID, unicode.IsControl)
		}},
	{name: "ttl", allowed: `a duration as text, such as "30s", of 100ms or more`,
		set: duration(distlock.MinTTL, math.MaxInt64, func(c *configuration) *time.Duration { return &c.ttl })},
	{name: "wait", allowed: `a duration as text, such as "5s", of 1ms or more, or "-1s" to wait as long as the context allows`,
		set: func(c *configuration, value any) bool {
			return duration(math.MinInt64, math.MaxInt64, func(c *configuration) *time.Duration { return &c.wait })(c, value) &&
				(c.wait < 0 || c.wait >= time.Millisecond)
		}},
	{name: "window", allowed: "a whole number of 1 or more: leave it out to load all",
		set: number(math.MaxInt32, func(c *configuration) *int { return &c.window })},
}

// duration takes text, as JSON has it, and time.Duration.
func duration(least, most time.Duration, field func(*configuration) *time.Duration) func(*configuration, any) bool {
	return func(c *configuration, value any) bool {
		d, ok := value.(time.Duration)
		if text, isText := value.(string); isText {
			parsed, err := time.ParseDuration(text)
			d, ok = parsed, err == nil
		}
		*field(c) = d
		return ok && d >= least && d <= most
	}
}

// number takes what JSON has for numbers, and the common types of Go.
func number(most int, field func(*configuration) *int) func(*configuration, any) bool {
	return func(c *configuration, value any) bool {
		var n float64
		switch v := value.(type) {
		case int:
			n = float64(v)
		case int32:
			n = float64(v)
		case int64:
			n = float64(v)
		case float64:
			n = v
		case interface{ Float64() (float64, error) }: // json.Number
			var err error
			if n, err = v.Float64(); err != nil {
				return false
			}
		default:
			return false
		}
		if n != math.Trunc(n) || n < 1 || n > float64(most) {
			return false
		}
		*field(c) = int(n)
		return true
	}
}

func parse(cfg config.ProviderConfig) (configuration, error) {
	c := configuration{url: cfg.BaseURL, timeout: cfg.Timeout}
	switch {
	case cfg.BaseURL == "":
		return c, invalid(`base_url is missing: write where the locks are, as "redis://localhost:6379", or "mem://" for a single process`)
	case cfg.APIKey != "":
		return c, invalid("api_key has no meaning here: write user:password@ before the host in base_url")
	case cfg.Timeout < 0:
		return c, invalid("timeout is %s, but must be positive: leave it out for %s", cfg.Timeout, defaultTimeout)
	case cfg.Timeout == 0:
		c.timeout = defaultTimeout
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Options)) { // so that the same mistakes give the same error
		value := cfg.Options[name]
		i := slices.IndexFunc(options, func(o option) bool { return o.name == name })
		if i < 0 {
			return c, invalid("option %q is not known: the options are %s", name, optionNames())
		}
		if o := options[i]; value != nil && !o.set(&c, value) {
			hint := ""
			if o.name == "inner" {
				hint = fmt.Sprintf(" (registered are %s)", strings.Join(memory.List(), ", "))
			}
			return c, invalid("option %q is %s, but must be %s%s", name, shown(o, value), o.allowed, hint)
		}
	}
	return c, c.agrees()
}

// agrees refuses options that do not go together.
func (c *configuration) agrees() error {
	switch {
	case c.wait != 0 && (c.maxRetries != 0 || c.retryDelay != 0):
		return invalid(`option "wait" does not go with "max_retries" and "retry_delay", whose product is the same: leave one or the other out`)
	case c.inner == "" && c.innerOptions != nil:
		return invalid(`option "inner_options" is for the memory that "inner" names: name it, or leave this out`)
	case c.inner != "" && (c.window != 0 || c.maxTurns != 0 || c.idleTTL != 0):
		return invalid(`options "window", "max_exchanges" and "idle_ttl" are those of the session store, and "inner" is another memory: ` +
			`leave out one or the other`)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", distlock.ErrInvalidOption, fmt.Errorf(format, args...))
}

func optionNames() string {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = o.name
	}
	return strings.Join(names, ", ")
}

// shown is a wrong value in an error's text.
func shown(o option, value any) string {
	text, isText := value.(string)
	switch {
	case isText && text == "":
		return "empty text"
	case isText && (o.private || len(text) > 100):
		return fmt.Sprintf("text of %d bytes", len(text))
	case isText:
		return fmt.Sprintf("%q", text)
	case o.private:
		return fmt.Sprintf("a %T", value)
	}
	switch value.(type) {
	case bool, int, int32, int64, float64, json.Number, time.Duration:
		return fmt.Sprintf("%v (%T)", value, value)
	}
	return fmt.Sprintf("a %T", value)
}

// locks are the settings of a Locker that memories may have different.
type locks struct {
	namespace                      string
	ttl, wait, retryDelay, maxHold time.Duration
}

func (c *configuration) locks() locks {
	l := locks{c.namespace, c.ttl, c.wait, c.retryDelay, c.maxHold}
	if c.maxRetries != 0 || c.retryDelay != 0 {
		retries, delay := c.maxRetries, c.retryDelay
		if retries == 0 {
			retries = defaultMaxRetries
		}
		if delay == 0 {
			delay = defaultRetryDelay
		}
		l.wait = time.Duration(retries) * delay
	}
	return l
}

func (c *configuration) store() *sessionstore.Options {
	o := &sessionstore.Options{IdleTTL: c.idleTTL, MaxExchanges: c.maxTurns, Window: c.window}
	if c.namespace != "" {
		o.Namespace = c.namespace + ":session"
	}
	return o
}

func (c *configuration) settings() settings {
	s := settings{key: SessionKey, wait: c.locks().wait, busy: c.busy}
	switch {
	case c.sessionID != "" && c.inner != "":
		s.key = oneConversation(c.sessionID)
	case c.sessionID != "":
		s.key = oneSession(c.sessionID)
	}
	return s
}
