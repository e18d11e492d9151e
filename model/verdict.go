package model

import "errors"

// Verdict is the answer to a request that was understood and judged: Accepted, Queued, or a refusal code. A refusal is a value;
// an error means that something broke. A refusal's string is the stable code that clients see in a problem document.
type Verdict string

// Accepted, and refusals of an attempt in the order in which gate and database check for them. A closed sale has ended, even
// before its start.
const (
	Accepted     Verdict = "accepted"
	NotFound     Verdict = "not_found"
	NotStarted   Verdict = "not_started"
	Ended        Verdict = "ended"
	Paused       Verdict = "paused"
	LimitReached Verdict = "limit_reached"
	SoldOut      Verdict = "sold_out"
)

// Queued: the attempt was admitted, and its outcome is not known yet. Queued is neither a confirmation nor a refusal.
const Queued Verdict = "queued"

// Other refusals: by the middleware, the handlers and the gate, of new accounts, of entries in a line and purchases by call, of
// later steps of an order's life, and of operators' requests.
const (
	BadRequest           Verdict = "bad_request"
	Unauthenticated      Verdict = "unauthenticated"
	BadSignature         Verdict = "bad_signature"
	BadPath              Verdict = "bad_path"
	Forbidden            Verdict = "forbidden"
	NameTaken            Verdict = "name_taken"
	NotPayable           Verdict = "not_payable"
	NotCancellable       Verdict = "not_cancellable"
	NotRefundable        Verdict = "not_refundable"
	AmountMismatch       Verdict = "amount_mismatch"
	PaymentRefused       Verdict = "payment_refused"
	RefundDue            Verdict = "refund_due"
	TooLarge             Verdict = "too_large"
	UnsupportedMediaType Verdict = "unsupported_media_type"
	IdempotencyMismatch  Verdict = "idempotency_mismatch"
	RateLimited          Verdict = "rate_limited"
	TooFrequent          Verdict = "too_frequent"
	Unavailable          Verdict = "unavailable"
	LabRunning           Verdict = "lab_running"
	SaleOpen             Verdict = "sale_open"
	QuotaChanged         Verdict = "quota_changed"
	TooMany              Verdict = "too_many"
	NoLine               Verdict = "no_line"
	WorkRequired         Verdict = "work_required"
	EntriesClosed        Verdict = "entries_closed"
	NotYourTurn          Verdict = "not_your_turn"
	CallEnded            Verdict = "call_ended"
)

// Internal verdicts that buyers never get. Unsure: the gate can't tell whether the sale is sold out, because units could not be
// brought from its other shards in time.
const (
	NoGate Verdict = "no_gate" // no open gate could judge the attempt
	Unsure Verdict = "unsure"
)

// Reasons of a rejected order that are not verdicts on an attempt. The attempt is refused for good; the buyer may try a new key.
const (
	ReasonLost   Verdict = "lost"   // the gate lost the queued attempt before it was settled
	ReasonFailed Verdict = "failed" // settling the attempt failed too often
)

var (
	// ErrUnavailable: a store or service that the work needs does not answer, or too much work waits. Nothing was promised, and
	// the caller may retry.
	ErrUnavailable = errors.New("unavailable")
	// ErrLostRace: another writer changed the stock row first; nothing was written.
	ErrLostRace = errors.New("lost the race for the stock row")
	// ErrBroken: the work can't succeed as it is, for example because the schema lacks a column.
	ErrBroken = errors.New("broken")
	// ErrApart: the work on several sales has to be done for each sale by itself.
	ErrApart = errors.New("each sale has to be settled by itself")
	// ErrBadCursor: the engine did not issue this page cursor.
	ErrBadCursor = errors.New("bad cursor")
)

// Errors of a payment provider.
var (
	// ErrBadNotice: the notice has no valid signature of the provider, or the signature is too old.
	ErrBadNotice = errors.New("bad notice")
	// ErrForeignNotice: the notice is about another account or mode, or in a form that the engine does not read.
	ErrForeignNotice = errors.New("foreign notice")
	// ErrNotOpened: the provider does not open a payment, and would say so again to a request with the same idempotency key.
	ErrNotOpened = errors.New("the provider does not open the payment")
	// ErrPaymentRefused: the provider refuses a payment, for example because of its amount, and will not take it later either.
	ErrPaymentRefused = errors.New("the provider refuses the payment")
	// ErrRefundRefused: the provider will not send this money back, however often it is asked.
	ErrRefundRefused = errors.New("the provider refuses the refund")
)
