package model

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"hash"
	"strings"
	"sync"
)

// Lengths of ids in characters of base32, and the beginning of the ids of shadow sales and their orders.
const (
	IDLength        = 16           // of a sale's id, and of each part of an order's id; 80 bits
	OrderIDLength   = 3 * IDLength // the sale's id, the attempt's part and the owner's tag
	NumberLength    = 8            // of an order's number
	PaymentIDLength = 26
	ShadowPrefix    = "SHADOW" // no id of another sale begins so
)

// NewSaleID makes an id that can't be guessed: of a sale, a campaign or an endpoint.
func NewSaleID() string { return outOfShadow(rand.Text()[:IDLength]) }

func NewShadowID() string { return ShadowPrefix + rand.Text()[:IDLength-len(ShadowPrefix)] }

// IsShadow reports whether this is the id of a shadow sale or of one of its orders.
func IsShadow(id string) bool { return strings.HasPrefix(id, ShadowPrefix) }

// outOfShadow changes an id that would be that of a shadow sale by chance.
func outOfShadow(id string) string {
	if IsShadow(id) {
		return "A" + id[1:]
	}
	return id
}

// OrderIDs derives ids from a secret key: those of orders, and those of what operators create under an idempotency key.
type OrderIDs struct{ macs *sync.Pool } // of *mac: setting up an HMAC costs more than computing it

// NewOrderIDs makes an OrderIDs with a key, which must not change while orders exist.
func NewOrderIDs(key []byte) OrderIDs {
	return OrderIDs{macs: &sync.Pool{New: func() any { return &mac{hash: hmac.New(sha256.New, key)} }}}
}

// Derive returns the id of a user's attempt on a sale under an idempotency key. The same values give the same id, so that a
// repeated attempt leads to the same order.
func (o OrderIDs) Derive(userID, saleID, idempotencyKey string) string {
	m := o.macs.Get().(*mac)
	defer o.macs.Put(m)
	id := append(make([]byte, 0, OrderIDLength), saleID...)
	id = m.append(id, "attempt", userID, saleID, idempotencyKey)
	return string(m.append(id, "owner", userID, string(id)))
}

// Sale returns the id of the sale, campaign or endpoint that an operator creates under an idempotency key.
func (o OrderIDs) Sale(operatorID, idempotencyKey string) string {
	m := o.macs.Get().(*mac)
	defer o.macs.Put(m)
	return outOfShadow(string(m.append(nil, "sale", operatorID, idempotencyKey)))
}

// Issued reports whether orderID was derived for this user, without a look-up.
func (o OrderIDs) Issued(userID, orderID string) bool {
	if len(orderID) != OrderIDLength {
		return false
	}
	m := o.macs.Get().(*mac)
	defer o.macs.Put(m)
	body, tag := orderID[:2*IDLength], orderID[2*IDLength:]
	return subtle.ConstantTimeCompare([]byte(tag), m.append(nil, "owner", userID, body)) == 1
}

// ValidID reports whether s has the form of an engine's id of this length: the letters A to Z and the digits 2 to 7.
func ValidID(s string, length int) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || 'Z' < c) && (c < '2' || '7' < c) {
			return false
		}
	}
	return len(s) == length
}

// SaleOf returns the id of the sale that an order belongs to, or "" if orderID has another length than an order's id.
func SaleOf(orderID string) string {
	if len(orderID) != OrderIDLength {
		return ""
	}
	return orderID[:IDLength]
}

// OrderNumber returns the number by which people name an order, or "" if orderID has another length than an order's id. In a
// sale with a million orders, the probability that another order has the number of a given order is about one in a million.
func OrderNumber(orderID string) string {
	if len(orderID) != OrderIDLength {
		return ""
	}
	return orderID[IDLength : IDLength+NumberLength]
}

// mac is a keyed hash with buffers for its input and output.
type mac struct {
	hash      hash.Hash
	text, sum []byte
}

// append appends IDLength base32 characters of HMAC-SHA256 over the parts. The length before each part makes sure that different
// lists of parts give different inputs.
func (m *mac) append(to []byte, parts ...string) []byte {
	m.text = m.text[:0]
	for _, p := range parts {
		m.text = binary.BigEndian.AppendUint64(m.text, uint64(len(p)))
		m.text = append(m.text, p...)
	}
	m.hash.Reset()
	m.hash.Write(m.text)
	m.sum = m.hash.Sum(m.sum[:0])
	return base32.StdEncoding.AppendEncode(to, m.sum[:IDLength*5/8])
}
