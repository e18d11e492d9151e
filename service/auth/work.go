package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	workAlgorithm = "SHA-256"
	workTime      = 30 * time.Minute // how long a challenge is valid
	maxWork       = 2048             // characters of a solution; a genuine one has about 400
)

// Challenge is a proof of work to be done, in the format of ALTCHA. Its solution is the number from 0 to MaxNumber for which
// SHA-256(Salt || number in decimal) is the field Challenge. To find the number takes MaxNumber/2 hashes on average.
type Challenge struct {
	Algorithm string `json:"algorithm"`
	Challenge string `json:"challenge"` // in hex
	MaxNumber int64  `json:"maxnumber"`
	Salt      string `json:"salt"`
	Signature string `json:"signature"` // HMAC-SHA256 over Challenge, in hex
}

// Works issues challenges and checks their solutions. The salt of a challenge binds it to a user, a sale and a time, so no store
// is needed. A solution can be used again, which does no harm: a user has at most one entry in a sale.
type Works struct {
	key []byte
	now func() time.Time
}

// NewWorks derives a key of its own from the secret. "now" is the clock that decides when a challenge has expired.
func NewWorks(secret []byte, now func() time.Time) *Works {
	return &Works{macOf(secret, "work"), now}
}

// Issue returns a new challenge for a user's entry in a sale. maxNumber must be positive.
func (w *Works) Issue(userID, saleID string, maxNumber int64) Challenge {
	var random [24]byte
	_, _ = rand.Read(random[:]) // never fails
	// maxNumber is far below 2^64, so no number is noticeably more likely than another.
	number := binary.BigEndian.Uint64(random[:]) % (uint64(maxNumber) + 1) //nolint:gosec // positive
	// The last character ends the parameters: otherwise digits could be moved from the number to a parameter.
	salt := hex.EncodeToString(random[8:]) + "?expires=" + strconv.FormatInt(w.now().Add(workTime).Unix(), 10) + "&for=" + w.owner(userID, saleID) + "&"
	c := Challenge{Algorithm: workAlgorithm, MaxNumber: maxNumber, Salt: salt, Challenge: workHash(salt, number)}
	c.Signature = w.sign(c.Challenge)
	return c
}

// Check reports whether a solution, as base64 of JSON, solves an unexpired challenge that Issue made for this user and sale.
func (w *Works) Check(solution, userID, saleID string) bool {
	if len(solution) > maxWork {
		return false
	}
	raw, err := base64.StdEncoding.DecodeString(solution)
	if err != nil {
		return false
	}
	var s struct { // clients may add fields
		Algorithm, Challenge, Salt, Signature string
		Number                                uint64
	}
	if json.Unmarshal(raw, &s) != nil || s.Algorithm != workAlgorithm {
		return false
	}
	if !hmac.Equal([]byte(s.Signature), []byte(w.sign(s.Challenge))) || workHash(s.Salt, s.Number) != s.Challenge {
		return false
	}
	// Issue made this salt. Digits of the number may have moved behind its last &, where they change no parameter.
	_, query, _ := strings.Cut(s.Salt, "?")
	values, err := url.ParseQuery(query)
	if err != nil || !hmac.Equal([]byte(values.Get("for")), []byte(w.owner(userID, saleID))) {
		return false
	}
	expires, err := strconv.ParseInt(values.Get("expires"), 10, 64)
	return err == nil && w.now().Before(time.Unix(expires, 0))
}

func workHash(salt string, number uint64) string {
	sum := sha256.Sum256([]byte(salt + strconv.FormatUint(number, 10)))
	return hex.EncodeToString(sum[:])
}

func (w *Works) sign(text string) string { return hex.EncodeToString(macOf(w.key, text)) }

// owner returns the text that binds a salt to a user and a sale: half of the MAC over their ids. A challenge has no zero byte, so
// its signature can't serve as an owner's text.
func (w *Works) owner(userID, saleID string) string { return w.sign(saleID + "\x00" + userID)[:32] }
