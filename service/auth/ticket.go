package auth

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
)

// Tickets issues and checks the tickets of entries in a line. A ticket proves a user's number in a sale's line, so that no
// store has to be asked for the number.
type Tickets struct{ key []byte }

// NewTickets derives a key of its own from the secret.
func NewTickets(secret []byte) *Tickets { return &Tickets{macOf(secret, "ticket")} }

const ticketBytes, ticketMACBytes = 8, 16 // of a ticket's number, and of the MAC after it

// Issue returns a ticket: base64url of the number (8 bytes, big-endian) and 16 bytes of HMAC-SHA256 over number, sale and user.
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
	return int64(binary.BigEndian.Uint64(raw)), hmac.Equal(raw[ticketBytes:], t.mac(raw[:ticketBytes], userID, saleID)) //nolint:gosec // not negative in a ticket of Issue
}

// mac returns the MAC of a ticket. Zero bytes keep the parts apart: no id has one, and the number has a fixed length.
func (t *Tickets) mac(number []byte, userID, saleID string) []byte {
	return macOf(t.key, string(number)+"\x00"+saleID+"\x00"+userID)[:ticketMACBytes]
}
