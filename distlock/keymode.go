package distlock

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
)

// KeyMode says how log lines and spans show the key of a lock. A key often identifies a person's
// session. The zero value means [KeyHashed].
type KeyMode string

const (
	// KeyHashed shows the first 16 hexadecimal digits of the key's SHA-256, so that log lines and
	// spans of one key can be found together. A hash does not hide a key that can be guessed.
	KeyHashed KeyMode = "hashed"
	// KeyRaw shows the key itself.
	KeyRaw KeyMode = "raw"
	// KeyNone leaves the key out.
	KeyNone KeyMode = "none"
)

// Validate returns [ErrInvalidOption] if m is unknown.
func (m KeyMode) Validate() error {
	switch m {
	case "", KeyHashed, KeyRaw, KeyNone:
		return nil
	}
	return invalidOption("KeyMode is %q, but must be %q, %q or %q", string(m), KeyHashed, KeyRaw, KeyNone)
}

// Show returns the key as m shows it. That is "" for [KeyNone], and the hash for an unknown mode.
func (m KeyMode) Show(key string) string {
	switch m {
	case KeyRaw:
		return key
	case KeyNone:
		return ""
	default:
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:8])
	}
}

// Attr returns the attribute lock_key of a log line about the key. For [KeyNone] that is an empty
// group, which slog leaves out.
func (m KeyMode) Attr(key string) slog.Attr {
	if m == KeyNone {
		return slog.Group("lock_key")
	}
	return slog.String("lock_key", m.Show(key))
}
