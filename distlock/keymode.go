package distlock

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
)

// KeyMode is how logs and spans show a key, which often identifies a person.
type KeyMode string

const (
	KeyHashed KeyMode = "hashed" // 16 hexadecimal digits of the SHA-256; does not hide a key that can be guessed
	KeyRaw    KeyMode = "raw"    // the key itself
	KeyNone   KeyMode = "none"
)

// Validate returns [ErrInvalidOption] if m is unknown.
func (m KeyMode) Validate() error {
	switch m {
	case "", KeyHashed, KeyRaw, KeyNone:
		return nil
	}
	return invalidOption("KeyMode is %q, but must be %q, %q or %q", string(m), KeyHashed, KeyRaw, KeyNone)
}

// Show returns the key as m shows it. An unknown mode shows the hash.
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

// Attr returns the attribute lock_key. For [KeyNone] it is an empty group, which slog leaves out.
func (m KeyMode) Attr(key string) slog.Attr {
	if m == KeyNone {
		return slog.Group("lock_key")
	}
	return slog.String("lock_key", m.Show(key))
}
