package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// Mark returns a mark that is equal for equal keys and secrets. It is an HMAC, so it does not reveal the secrets.
func Mark(key, secret, paymentSecret []byte) string {
	return hex.EncodeToString(macOf(macOf(key, string(secret)), string(paymentSecret))[:8])
}

// macOf returns the HMAC-SHA256 of a text.
func macOf(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// keyedMAC is a MAC that has its key, with buffers for its input, other texts and its sum.
type keyedMAC struct {
	hash.Hash
	in, out []byte
	sum     [sha256.Size]byte
}

// newMAC returns the New of a sync.Pool of *keyedMAC. MACs are pooled, since setting a key costs as much as computing a MAC.
func newMAC(of func() hash.Hash, key []byte) func() any {
	return func() any { return &keyedMAC{Hash: hmac.New(of, key)} }
}
