package distlock

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/trust"
)

const (
	// MinTTL is the shortest TTL a lease may have. Below it, drift and scheduling delays would eat up most of it.
	MinTTL = 100 * time.Millisecond

	defaultNamespace = "distlock"
	defaultTTL       = 30 * time.Second
	defaultWait      = 5 * time.Second // beyond the TTL
	defaultRetryMin  = 10 * time.Millisecond
	defaultRetryMax  = 250 * time.Millisecond
	minRenewEvery    = 10 * time.Millisecond
)

// Options configure a [Locker]. The zero value of each field means its default; nil Options mean all defaults.
type Options struct {
	// Namespace is the prefix of every key, so that several applications can share one service. Default "distlock";
	// at most 128 bytes of UTF-8 without braces and control characters.
	Namespace string
	// TTL is how long a lease outlives a holder that has died. Default 30 s, at least 100 ms, whole milliseconds. A living holder keeps its
	// lease as long as it wants, by renewal: choose the TTL by how long others may be kept waiting after a crash.
	TTL time.Duration
	// Wait is the longest that an Acquire waits if its ctx does not end sooner. Default TTL + 5 s, so
	// that waiters outlive a crashed holder. Negative: ctx alone decides. [WithWait] changes it for one
	// call. The time in the queue counts. An Acquire to which the backend gives no
	// answer at all fails after min(5 s, TTL), also if Wait is longer or negative.
	Wait time.Duration
	// Retry paces a waiting Acquire where the lock service cannot tell it that the lock is free: it keeps no line, or the
	// right to be notified is missing. It also paces the attempts after a failure. Who stands in a line and can be notified
	// does not poll.
	Retry Retry
	// RenewEvery is the period of renewal. Default TTL/3; at least 10 ms, at most a little less
	// than TTL/2 (14.724 s of 30 s), so that one failed renewal leaves time for another. Negative:
	// no renewal, the lease ends with its TTL unless Extend is called.
	RenewEvery time.Duration
	// MaxHold is the age past which a lease is not renewed any more, so that a holder that is stuck cannot keep it for
	// ever. Default: none. The lease then ends at most one TTL later.
	MaxHold time.Duration
	// Holder tells people who holds a lock, in Inspect and BusyError. Default host:pid; at most 256 bytes.
	Holder string
	// Observer sees every operation. Default: none.
	Observer Observer
	// Logger takes events without a caller to return an error to: lost leases, failed renewals and
	// clean-ups. Default [slog.Default]. LogKeys says how its lines show keys.
	Logger *slog.Logger
	// LogKeys says how log lines about one key show the key, as the attribute lock_key. Default
	// [KeyHashed]. With the same mode, spans of the package tracing have the same attribute.
	LogKeys KeyMode
}

// Retry is exponential backoff with full jitter: before attempt n+1 a waiter sleeps for a random time between 0 and
// min(Max, Min·2ⁿ), which spreads waiters that have started together (Marc Brooker, "Exponential Backoff and Jitter",
// AWS Architecture Blog, 2015).
type Retry struct {
	Min time.Duration // first upper bound; default 10 ms
	Max time.Duration // last upper bound; default 250 ms
}

// delay is how long to sleep after the given number of attempts, at least 1.
func (r Retry) delay(attempts int) time.Duration {
	bound := r.Min
	for i := 1; i < attempts && bound < r.Max; i++ {
		bound *= 2
	}
	// A sleep of almost nothing would be a busy loop against the lock service.
	return max(time.Millisecond, rand.N(min(bound, r.Max)+1))
}

// withDefaults validates o and fills in the defaults. It changes nothing that the caller can see.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	setDefault(&c.Namespace, defaultNamespace)
	setDefault(&c.TTL, defaultTTL)
	setDefault(&c.Wait, c.TTL+defaultWait)
	setDefault(&c.Retry.Min, min(defaultRetryMin, positiveOr(c.Retry.Max, defaultRetryMin)))
	setDefault(&c.Retry.Max, max(defaultRetryMax, c.Retry.Min))
	setDefault(&c.Holder, defaultHolder())
	setDefault(&c.LogKeys, KeyHashed)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}

	if err := c.validate(); err != nil {
		return Options{}, err
	}
	c.TTL = c.TTL.Truncate(time.Millisecond) // what every service can keep
	setDefault(&c.RenewEvery, c.TTL/3)
	return c, nil
}

func (o *Options) validate() error {
	if err := validTTL(o.TTL); err != nil {
		return err
	}
	if err := o.LogKeys.Validate(); err != nil {
		return err
	}
	switch {
	case len(o.Namespace) > maxNamespace:
		return invalidOption("Namespace has %d bytes, at most %d are allowed", len(o.Namespace), maxNamespace)
	case badText(o.Namespace) != "":
		return invalidOption("Namespace %q contains %s", o.Namespace, badText(o.Namespace))
	case strings.ContainsAny(o.Namespace, "{}"):
		return invalidOption("Namespace %q contains a brace: braces mark the part of a Redis key that is hashed, use another separator", o.Namespace)
	case o.RenewEvery > mostRenewEvery(o.TTL):
		return invalidOption("RenewEvery is %s, but with a TTL of %s it must be at most %s, so that one failed renewal leaves time for another: "+
			"leave it 0 for a third of TTL, or negative for no renewal", o.RenewEvery, o.TTL, mostRenewEvery(o.TTL))
	case o.RenewEvery > 0 && o.RenewEvery < minRenewEvery:
		return invalidOption("RenewEvery is %s, but must be at least %s: leave it 0 for a third of TTL", o.RenewEvery, minRenewEvery)
	case o.MaxHold < 0:
		return invalidOption("MaxHold is %s, but must not be negative: leave it 0 for no bound", o.MaxHold)
	case o.Retry.Min < time.Millisecond:
		return invalidOption("Retry.Min is %s, but must be at least 1ms: leave it 0 for %s", o.Retry.Min, defaultRetryMin)
	case o.Retry.Max < o.Retry.Min:
		return invalidOption("Retry.Max is %s, but must not be below Retry.Min, which is %s", o.Retry.Max, o.Retry.Min)
	case len(o.Holder) > maxHolder:
		return invalidOption("Holder has %d bytes, at most %d are allowed", len(o.Holder), maxHolder)
	case badText(o.Holder) != "":
		return invalidOption("Holder contains %s", badText(o.Holder))
	}
	return nil
}

// mostRenewEvery is half of the time for which a renewal gives trust.
func mostRenewEvery(ttl time.Duration) time.Duration {
	return (trust.Full(ttl) / 2).Truncate(time.Millisecond)
}

func validTTL(ttl time.Duration) error {
	if 0 < ttl && ttl < time.Microsecond { // a number without a unit
		return invalidOption("TTL is %s, but must be at least %s: did you mean %d*time.Second?", ttl, MinTTL, ttl)
	}
	if ttl < MinTTL {
		return invalidOption("TTL is %s, but must be at least %s: a lease this short would end between two renewals", ttl, MinTTL)
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func positiveOr(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil || host == "" || badText(host) != "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
