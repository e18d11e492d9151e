package auth

import (
	"crypto/md5" //nolint:gosec // inside HMAC only, see Paths
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"sync"
	"time"
)

const (
	pathExpiryDigits = 8 // unix seconds in 32 bits, good until 2106
	pathMACBytes     = 12
	pathDigits       = pathExpiryDigits + 2*pathMACBytes
)

// Paths issues and checks the hidden part of a purchase URL: 32 hex digits that are valid for one user and one sale until they
// expire. The first 8 are the expiry in unix seconds, so that a check needs no store. The other 24 are HMAC-MD5-96 (RFC 2403)
// over user, sale and expiry. Collisions of MD5 do not break HMAC, whose inner state depends on a key that the attacker does not
// have.
type Paths struct {
	macs sync.Pool // of *keyedMAC
	now  func() time.Time
}

// NewPaths creates a Paths. It derives a key of its own from the secret, so that no other signature by the secret is a valid
// path. "now" is the clock that decides when a path has expired.
func NewPaths(secret []byte, now func() time.Time) *Paths {
	return &Paths{sync.Pool{New: newMAC(md5.New, macOf(secret, "path"))}, now}
}

// Issue returns a path that is valid until just before expiresAt, which is ttl from now, cut to whole seconds.
func (p *Paths) Issue(userID, saleID string, ttl time.Duration) (path string, expiresAt time.Time) {
	expiresAt = p.now().Add(ttl).UTC().Truncate(time.Second)
	expiry := uint32(expiresAt.Unix()) //nolint:gosec // overflows in 2106, see pathExpiryDigits
	path = string(p.seal(nil, userID, saleID, expiry))
	return path, expiresAt
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
	// Compare the hex text, not the decoded bytes, so that each path has a single valid spelling: lower case.
	var given, genuine [pathDigits]byte
	copy(given[:], path)
	return subtle.ConstantTimeCompare(given[:], p.seal(genuine[:0], userID, saleID, uint32(expiry))) == 1
}

// seal appends expiry and MAC. In the MAC's input each part is preceded by its length. Otherwise the user "53" in sale "" and the
// user "5" in sale "3" would share a path.
func (p *Paths) seal(to []byte, userID, saleID string, expiry uint32) []byte {
	mac, _ := p.macs.Get().(*keyedMAC)
	defer p.macs.Put(mac)
	in := mac.in[:0]
	in = binary.BigEndian.AppendUint64(in, uint64(len(userID)))
	in = append(in, userID...)
	in = binary.BigEndian.AppendUint64(in, uint64(len(saleID)))
	in = append(in, saleID...)
	in = binary.BigEndian.AppendUint64(in, pathExpiryDigits/2)
	in = binary.BigEndian.AppendUint32(in, expiry)
	stamp := in[len(in)-pathExpiryDigits/2:]
	mac.in = in

	mac.Reset()
	_, _ = mac.Write(in) // a hash never returns an error
	return hex.AppendEncode(hex.AppendEncode(to, stamp), mac.Sum(mac.sum[:0])[:pathMACBytes])
}
