package model

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
)

// Attempt is one purchase request on its way through the engine.
type Attempt struct {
	ID          string // the order's id, if there will be one
	SaleID      string
	UserID      string
	Quantity    int
	RequestKey  string
	RequestHash string // of what the request asks for, to tell a repeat from another request under the same key
	Frequency   Frequency
	Keyless     bool // the engine made the request key: the attempt repeats nothing that came before
}

// Look is what a read of the database said of an attempt.
type Look struct {
	Offer   Offer
	Now     time.Time // by the database's clock
	Decided *Outcome  // the outcome of a known attempt, or a refusal; nil if there is something to write
}

// HashRequest gives the request hash of an attempt: 32 hex digits over all that a body can ask for.
func HashRequest(quantity int) string {
	sum := sha256.Sum256([]byte("quantity=" + strconv.Itoa(quantity)))
	return hex.EncodeToString(sum[:16])
}

// Replay is the answer to an attempt whose id was known before: what it got then, or IdempotencyMismatch
// if it asks for something else than the attempt did. Of an attempt that was lost the request is not known.
func (a Attempt) Replay(known Outcome) Outcome {
	known.Repeated = true
	if known.Order != nil && known.Order.RequestHash != "" && known.Order.RequestHash != a.RequestHash {
		return Outcome{Verdict: IdempotencyMismatch, Repeated: true}
	}
	return known
}

// Frequency is how many requests a user may make to a sale in a window. A zero Limit means no limit.
type Frequency struct {
	Limit  int
	Window time.Duration
}

// Outcome is what became of an attempt. Accepted with an Order is a durable yes; Accepted without one
// means that the attempt is queued. A refusal that was queued first carries a rejected Order.
type Outcome struct {
	Verdict    Verdict
	Order      *Order        `json:",omitempty"`
	Repeated   bool          `json:",omitempty"` // the attempt's id was known before
	RetryAfter time.Duration `json:",omitempty"` // with TooFrequent
}

// Queued reports whether the attempt was admitted and waits to be settled.
func (o Outcome) Queued() bool { return o.Verdict == Accepted && o.Order == nil }

// Entry is an admitted attempt as the gate's stream holds it.
type Entry struct {
	Attempt
	StreamID   string
	Epoch      int64  // the gate's
	Instance   string // whose buyer waits
	Deliveries int64  // how often the stream has handed it out, 1 at first
}

// Valid reports whether an entry may be one that the gate has admitted. What is larger or stranger could be neither
// settled nor refused: no column takes it.
func (e Entry) Valid() bool {
	return ValidID(e.ID, OrderIDLength) && e.SaleID == SaleOf(e.ID) && ValidUserID(e.UserID) &&
		e.Quantity > 0 && e.Quantity <= math.MaxInt32 && e.RequestKey != "" && validHash(e.RequestHash)
}

// hashDigits are those of a request hash.
const hashDigits = 32

// validHash reports whether a text may be a request hash: visible ASCII characters that its column takes.
func validHash(s string) bool {
	return s != "" && len(s) <= hashDigits && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
