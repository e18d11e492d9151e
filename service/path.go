package service

import (
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // inside HMAC only, see Paths
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"
)

const (
	pathExpiryDigits = 8 // unix seconds in 32 bits, good until 2106
	pathMACBytes     = 12
	pathDigits       = pathExpiryDigits + 2*pathMACBytes
)

// Paths issues and checks the hidden part of a purchase URL: 32 hex digits that are good for one user and
// one sale until they expire. The first 8 are the expiry in unix seconds; the other 24 are HMAC-MD5-96
// (RFC 2403) over user, sale and expiry.
//
// MD5 is broken as a plain hash: anyone can make two inputs that collide. That doesn't carry over to HMAC,
// whose inner state depends on a key that the forger lacks; no better forgery of HMAC-MD5 is known than
// guessing 96 bits. A plain MD5 of user and sale with a salt would have no such standing.
//
// The expiry rides inside the path, so that checking needs no store; being under the MAC, it can't be moved.
type Paths struct {
	key []byte
	now func() time.Time
}

// NewPaths takes the secret, from which it derives a key of its own, so that no signature made elsewhere
// with the same secret can pass for a path; and the clock that says when a path has expired.
func NewPaths(secret []byte, now func() time.Time) *Paths {
	derive := hmac.New(sha256.New, secret)
	derive.Write([]byte("path"))
	return &Paths{key: derive.Sum(nil), now: now}
}

// Issue makes the path of the user for the sale; it is good until just before expiresAt, which is ttl from
// now, cut to whole seconds.
func (p *Paths) Issue(userID, saleID string, ttl time.Duration) (path string, expiresAt time.Time) {
	expiresAt = p.now().Add(ttl).UTC().Truncate(time.Second)
	expiry := uint32(expiresAt.Unix()) //nolint:gosec // overflows in 2106, see pathExpiryDigits
	return p.seal(userID, saleID, expiry), expiresAt
}

// Check reports whether path was issued to this user for this sale and hasn't expired.
func (p *Paths) Check(path, userID, saleID string) bool {
	if len(path) != pathDigits {
		return false
	}
	expiry, err := strconv.ParseUint(path[:pathExpiryDigits], 16, 32)
	if err != nil || p.now().Unix() >= int64(expiry) {
		return false
	}
	// Comparing the text, not the bytes, leaves each path a single spelling: lower case.
	genuine := p.seal(userID, saleID, uint32(expiry))
	return subtle.ConstantTimeCompare([]byte(path), []byte(genuine)) == 1
}

// seal writes expiry and MAC. Each part goes into the MAC behind its length: joined bare, the user "53" in
// sale "" and the user "5" in sale "3" would share a path, as would (5, 3) and (4, 4) if ids were summed.
func (p *Paths) seal(userID, saleID string, expiry uint32) string {
	mac := hmac.New(md5.New, p.key)
	stamp := binary.BigEndian.AppendUint32(nil, expiry)
	for _, part := range [][]byte{[]byte(userID), []byte(saleID), stamp} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write(part)
	}
	whole := mac.Sum(stamp) // the stamp with the MAC behind it
	return hex.EncodeToString(whole[:len(stamp)+pathMACBytes])
}
