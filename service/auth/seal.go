package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
)

// Seals encrypts secrets that the database keeps, so that a copy of the database does not reveal them.
type Seals struct{ aead cipher.AEAD }

// NewSeals derives the key from the engine's secret. A text that was sealed under another secret can't be opened.
func NewSeals(secret []byte) *Seals {
	// With a key of this length, none of the three functions returns an error.
	key, _ := hkdf.Key(sha256.New, secret, nil, "flashsale sealed secrets", 32)
	block, _ := aes.NewCipher(key)
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return &Seals{aead}
}

// Seal encrypts a text.
func (s *Seals) Seal(text string) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, []byte(text), nil)) //nolint:gosec // the AEAD makes the nonce itself
}

// ErrSealed means that a text can't be opened: it was sealed under another secret, or is damaged.
var ErrSealed = errors.New("sealed with another --secret")

// Open decrypts a sealed text. The only error is ErrSealed.
func (s *Seals) Open(sealed string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", ErrSealed
	}
	text, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil {
		return "", ErrSealed
	}
	return string(text), nil
}
