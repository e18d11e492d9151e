package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Mark returns a mark that is equal for instances with the same secrets. It is an HMAC under a key from the
// database, so it reveals nothing else about the secrets.
func Mark(key, secret, paymentSecret []byte) string {
	return hex.EncodeToString(macOf(macOf(key, string(secret)), string(paymentSecret))[:8])
}

// macOf returns the HMAC-SHA256 of a text. Under the engine's secret, the MAC of a purpose is the key for that purpose.
func macOf(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
