package sandbox

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	callbackSecret = []byte("0123456789abcdef0123456789abcdef")
	callbackTime   = time.Date(2026, 11, 11, 20, 0, 0, 123456789, time.UTC)
)

// A callback is accepted only with the signature of exactly its bytes, and only within the window.
func FuzzCallbackSignature(f *testing.F) {
	now, body := strconv.FormatInt(callbackTime.Unix(), 10), []byte(`{"payment_id":"A"}`)
	for _, timestamp := range []string{now, "0" + now, "+" + now, "9223372036854775807", "-9223372036854775808"} {
		f.Add(timestamp, Sign(callbackSecret, timestamp, body), body)
	}
	f.Add(now, strings.ToUpper(Sign(callbackSecret, now, body)), body)
	f.Add(now+".", Sign(callbackSecret, now, body), body)
	f.Add(now, "", body)
	f.Add(now, strings.Repeat("0", 64), []byte(nil))
	provider := &Provider{Secret: callbackSecret, Now: func() time.Time { return callbackTime }}
	f.Fuzz(func(t *testing.T, timestamp, signature string, body []byte) {
		own, another := Sign(callbackSecret, timestamp, body), Sign([]byte("another"), timestamp, body)
		for _, tc := range []string{signature, own, another} {
			if !provider.Signed(timestamp, tc, body) {
				continue
			}
			mac := hmac.New(sha256.New, callbackSecret)
			mac.Write([]byte(timestamp + "." + string(body)))
			given, err := hex.DecodeString(tc)
			if err != nil || !bytes.Equal(given, mac.Sum(nil)) {
				t.Errorf("%q is accepted as the signature of %q at %q", tc, body, timestamp)
			}
			unix, err := strconv.ParseInt(timestamp, 10, 64)
			if age := callbackTime.Sub(time.Unix(unix, 0)).Abs(); err != nil || age > callbackWindow || unix != time.Unix(unix, 0).Unix() {
				t.Errorf("the timestamp %q is accepted %s away", timestamp, age)
			}
		}
	})
}
