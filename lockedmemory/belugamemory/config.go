package belugamemory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/config"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

const defaultTimeout = 5 * time.Second

// configuration holds the settings of a ProviderConfig. The constructors of the locks and of the store
// check the ranges.
type configuration struct {
	url      string
	timeout  time.Duration
	observer distlock.Observer
	options
}

// options are the Options of a ProviderConfig, without the observer.
type options struct {
	Busy          busy     `json:"busy"`
	IdleTTL       duration `json:"idle_ttl"`
	Interruptible bool     `json:"interruptible"`
	MaxExchanges  int      `json:"max_exchanges"`
	MaxHold       duration `json:"max_hold"`
	Namespace     string   `json:"namespace"`
	SessionID     string   `json:"session_id"`
	Store         string   `json:"store"`
	TTL           duration `json:"ttl"`
	Wait          duration `json:"wait"`
	Window        int      `json:"window"`
}

type busy lockedmemory.BusyPolicy

func (b *busy) UnmarshalText(text []byte) error {
	policy, known := map[string]lockedmemory.BusyPolicy{"queue": lockedmemory.Queue, "refuse": lockedmemory.Refuse}[string(text)]
	if *b = busy(policy); !known {
		return errors.New(`must be "queue" or "refuse"`)
	}
	return nil
}

type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if *d = duration(parsed); err == nil && parsed == 0 {
		err = errors.New("is 0: leave it out for the default")
	}
	return err
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
	for _, name := range slices.Sorted(maps.Keys(cfg.Options)) { // the same mistakes give the same error
		if err := c.set(name, cfg.Options[name]); err != nil {
			return c, codes.Invalid("option %q: %w; docs/reference/beluga.md has all options", name, err)
		}
	}
	return c, nil
}

// set sets one option. The text of its error does not show a value of another type.
func (c *configuration) set(name string, value any) error {
	if name == "observer" {
		var ok bool
		if c.observer, ok = value.(distlock.Observer); !ok && value != nil {
			return fmt.Errorf("a %T is no distlock.Observer: give that of tracing.New", value)
		}
		return nil
	}
	if text, ok := value.(string); ok && (text == "" || !utf8.ValidString(text)) {
		return errors.New("the text is empty or not UTF-8: leave it out for the default")
	}
	if d, ok := value.(time.Duration); ok {
		value = d.String()
	}
	text, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return fmt.Errorf("a %T is no JSON", value)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&c.options)
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return fmt.Errorf("must not be a %s", wrong.Value)
	}
	return err
}
