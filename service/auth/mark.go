package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Mark returns a mark that is equal for instances with the same secrets. It is an HMAC under a key from the
// database, so it reveals nothing else about the secrets.
func Mark(key, secret, paymentSecret []byte) string {
	of := func(key, text []byte) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write(text)
		return mac.Sum(nil)
	}
	return hex.EncodeToString(of(of(key, secret), paymentSecret)[:8])
}
