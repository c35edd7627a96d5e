package distlock

import (
	"crypto/sha256"
	"encoding/hex"
)

// KeyMode is how logs and spans show a key, which often identifies a person.
type KeyMode string

const (
	KeyHashed KeyMode = "hashed" // 16 hexadecimal digits of the SHA-256; does not hide a key that can be guessed
	KeyRaw    KeyMode = "raw"    // the key itself
	KeyNone   KeyMode = "none"
)

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
