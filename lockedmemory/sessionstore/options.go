package sessionstore

import (
	"cmp"
	"log/slog"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Retention says what a store keeps, where, and for how long. A driver has it, so all stores over one
// driver share it.
type Retention = storedriver.Retention

// Options configure the view of a [Store]: what it reads, and the messages that it takes. The zero
// value of a field, and nil Options, mean the defaults.
type Options struct {
	// Window is how many exchanges Load returns at most: the last turns, whole. The newest turn is
	// returned whole, also if it is longer. Pinned exchanges come in addition. Default: all that are kept.
	Window int
	// MaxMessage is the size of an encoded message, in bytes, above which Save refuses it. At most
	// 256 MiB. The messages of an exchange have twice that together at most. Default: 8 MiB.
	MaxMessage int
	// SkipBroken lets all reads leave out an entry that cannot be read, and log its place and the reason. For
	// lockedmemory's Answer, such an answer is gone. Default: the entry ends the call with an [EntryError].
	SkipBroken bool
	// Logger takes a record for each entry that SkipBroken leaves out. Default: slog.Default().
	Logger *slog.Logger
}

const maxMaxMessage = 256 << 20

// withDefaults returns the options with the defaults filled in. It fails with
// distlock.ErrInvalidOption if a field is out of range.
func (opts *Options) withDefaults() (o Options, err error) {
	o = *cmp.Or(opts, &Options{})
	o.MaxMessage, o.Logger = cmp.Or(o.MaxMessage, 8<<20), cmp.Or(o.Logger, slog.Default())
	switch {
	case o.Window < 0:
		err = invalidOption("Window is %d, but must be positive, or 0 to load all", o.Window)
	case o.MaxMessage < 1 || o.MaxMessage > maxMaxMessage:
		err = invalidOption("MaxMessage is %d bytes, but must be from 1 to %d", o.MaxMessage, maxMaxMessage)
	}
	return o, err
}
