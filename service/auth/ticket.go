package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// Tickets issues and checks the tickets of entries in a line. A ticket proves a user's number in a sale's line, so that no
// store has to be asked for it.
type Tickets struct{ key []byte }

// NewTickets derives a key of its own from the secret.
func NewTickets(secret []byte) *Tickets {
	derive := hmac.New(sha256.New, secret)
	derive.Write([]byte("ticket"))
	return &Tickets{derive.Sum(nil)}
}

// ticketBytes is the length of a ticket's number, and of the MAC after it.
const ticketBytes, ticketMACBytes = 8, 16

// Issue returns a ticket: base64url of the number (8 bytes, big-endian) and the first 16 bytes of HMAC-SHA256 over number,
// sale and user.
func (t *Tickets) Issue(userID, saleID string, number int64) string {
	raw := binary.BigEndian.AppendUint64(make([]byte, 0, ticketBytes+ticketMACBytes), uint64(number)) //nolint:gosec // not negative
	return base64.RawURLEncoding.EncodeToString(append(raw, t.mac(raw, userID, saleID)...))
}

// Check returns the number of a ticket; ok is false if the ticket was not issued to this user for this sale.
func (t *Tickets) Check(ticket, userID, saleID string) (number int64, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(ticket)
	if err != nil || len(raw) < ticketBytes {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(raw)), hmac.Equal(raw[ticketBytes:], t.mac(raw[:ticketBytes], userID, saleID)) //nolint:gosec // issued above
}

func (t *Tickets) mac(number []byte, userID, saleID string) []byte {
	mac := hmac.New(sha256.New, t.key)
	// Sales' ids have no zero byte, and neither have users'.
	mac.Write([]byte(strings.Join([]string{string(number), saleID, userID}, "\x00")))
	return mac.Sum(nil)[:ticketMACBytes]
}
