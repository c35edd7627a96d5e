package distlock

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// MinTTL is the shortest TTL of a lease.
const MinTTL = 100 * time.Millisecond

// maxTTL bounds a TTL. ⚑ A sum or a multiple of a longer one may be negative, and a lease would then have
// ended at its grant.
const maxTTL = 10 * 365 * 24 * time.Hour

const (
	defaultNamespace = "distlock"
	defaultTTL       = 30 * time.Second
	defaultWait      = 5 * time.Second // beyond the TTL
	minRenewEvery    = 10 * time.Millisecond
)

// Options configure a [Locker]. Zero fields and nil Options mean the defaults.
type Options struct {
	Namespace string        // prefix of every key, at most 128 bytes without braces; default "distlock"
	TTL       time.Duration // how long a lease outlives its dead holder, MinTTL to 10 years; default 30 s
	// Wait is the longest wait of an Acquire. Default TTL + 5 s, to outlive a dead holder. Negative: ctx
	// alone decides. A silent backend ends it after min(5 s, TTL), or twice that behind another Acquire.
	Wait          time.Duration
	RenewEvery    time.Duration // 10 ms to a little below TTL/2; default TTL/3; negative: no renewal
	MaxHold       time.Duration // the age from which a lease is not renewed; default: none
	Holder        string        // names the holder for people, at most 256 bytes; default host:pid
	Observer      Observer      // sees every operation; see Observers; default: none
	Logger        *slog.Logger  // takes events without a caller, as lost leases; default slog.Default
	LogKeys       KeyMode       // how log lines show a key, as lock_key; default KeyHashed
	Interruptible bool          // an Interrupt ends the work at once, not at the next renewal; it needs renewals
}

// withDefaults returns a valid copy of o with defaults.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Namespace = cmp.Or(c.Namespace, defaultNamespace)
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	c.Wait = cmp.Or(c.Wait, c.TTL+defaultWait)
	c.Holder = cmp.Or(c.Holder, defaultHolder())
	c.LogKeys = cmp.Or(c.LogKeys, KeyHashed)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if err := c.validate(); err != nil {
		return Options{}, err
	}
	c.TTL = c.TTL.Truncate(time.Millisecond) // every backend can keep milliseconds
	c.RenewEvery = cmp.Or(c.RenewEvery, c.TTL/3)
	return c, nil
}

func (o *Options) validate() error {
	if err := validTTL(o.TTL); err != nil {
		return err
	}
	switch {
	case len(o.Namespace) > maxNamespace:
		return invalidOption("Namespace has %d bytes, at most %d are allowed", len(o.Namespace), maxNamespace)
	case badText(o.Namespace) != "":
		return invalidOption("Namespace %q contains %s", o.Namespace, badText(o.Namespace))
	case strings.ContainsAny(o.Namespace, "{}"):
		return invalidOption("Namespace %q contains a brace: braces mark the part of a Redis key that is hashed, "+
			"use another separator", o.Namespace)
	case o.RenewEvery > mostRenewEvery(o.TTL):
		return invalidOption("RenewEvery is %s, but with a TTL of %s it must be at most %s, so that one failed renewal "+
			"leaves time for another: leave it 0 for a third of TTL, or negative for no renewal",
			o.RenewEvery, o.TTL, mostRenewEvery(o.TTL))
	case o.RenewEvery > 0 && o.RenewEvery < minRenewEvery:
		return invalidOption("RenewEvery is %s, but must be at least %s: leave it 0 for a third of TTL",
			o.RenewEvery, minRenewEvery)
	case o.MaxHold < 0:
		return invalidOption("MaxHold is %s, but must not be negative: leave it 0 for no bound", o.MaxHold)
	case len(o.Holder) > maxHolder:
		return invalidOption("Holder has %d bytes, at most %d are allowed", len(o.Holder), maxHolder)
	case badText(o.Holder) != "":
		return invalidOption("Holder contains %s", badText(o.Holder))
	}
	return nil
}

// mostRenewEvery returns half of the time for which a renewal gives trust.
func mostRenewEvery(ttl time.Duration) time.Duration {
	return (trust.Full(ttl) / 2).Truncate(time.Millisecond)
}

func validTTL(ttl time.Duration) error {
	if 0 < ttl && ttl < time.Microsecond { // a number without a unit
		return invalidOption("TTL is %s, but must be at least %s: did you mean %d*time.Second?", ttl, MinTTL, ttl)
	}
	if ttl < MinTTL {
		return invalidOption("TTL is %s, but must be at least %s: a lease this short would end between two renewals",
			ttl, MinTTL)
	}
	if ttl > maxTTL {
		return invalidOption("TTL is %s, but must be at most %s: a dead holder would keep the lock for this long",
			ttl, maxTTL)
	}
	return nil
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil || host == "" || badText(host) != "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
