package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// callbackWindow is how far a callback's timestamp may be from the present.
const callbackWindow = 5 * time.Minute

// Signed reports whether a callback's signature is right and its timestamp (unix s) is within callbackWindow of now.
func (p *Provider) Signed(timestamp, signature string, body []byte) bool {
	unix, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || p.Now().Sub(time.Unix(unix, 0)).Abs() > callbackWindow {
		return false
	}
	return hmac.Equal([]byte(strings.ToLower(signature)), []byte(Sign(p.Secret, timestamp, body)))
}

// Sign returns the signature of a callback: the HMAC-SHA256, in hex, of the timestamp, a dot and the body.
func Sign(secret []byte, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(timestamp + "."))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}
