package model

import "errors"

// Verdict is the answer to a request that was understood and judged: Accepted, Queued, or a refusal code. A refusal is a value;
// an error means that something broke.
type Verdict string

// Accepted, and refusals of an attempt in the order in which they are checked. A closed sale has ended, even before its start.
const (
	Accepted     Verdict = "accepted"
	NotFound     Verdict = "not_found"
	NotStarted   Verdict = "not_started"
	Ended        Verdict = "ended"
	Paused       Verdict = "paused"
	LimitReached Verdict = "limit_reached"
	SoldOut      Verdict = "sold_out"
)

// Queued: the gate knows the attempt, and its outcome is not known here yet.
const Queued Verdict = "queued"

// Other refusals.
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
	Started              Verdict = "started"
	Entered              Verdict = "entered"
	TooMany              Verdict = "too_many"
	NoLine               Verdict = "no_line"
	WorkRequired         Verdict = "work_required"
	EntriesClosed        Verdict = "entries_closed"
	NotYourTurn          Verdict = "not_your_turn"
	CallEnded            Verdict = "call_ended"
)

// Verdicts on an attempt that buyers never get.
const (
	NoGate Verdict = "no_gate" // no open gate could judge the attempt
	Unsure Verdict = "unsure"  // units could not be brought from other shards in time
)

// Reasons of a rejected order that are not verdicts on an attempt.
const (
	ReasonLost   Verdict = "lost"   // the attempt was lost before it was settled
	ReasonFailed Verdict = "failed" // settling the attempt failed too often
)

var (
	// ErrUnavailable: a store or service does not answer, or too much work waits. The caller may retry.
	ErrUnavailable = errors.New("unavailable")
	// ErrLostRace: another writer changed the stock row first; nothing was written.
	ErrLostRace = errors.New("lost the race for the stock row")
	// ErrBroken: the work can't succeed as it is.
	ErrBroken = errors.New("broken")
	// ErrApart: each of several sales has to be handled by itself.
	ErrApart = errors.New("each sale has to be settled by itself")
	// ErrBadCursor: the engine did not issue this page cursor.
	ErrBadCursor = errors.New("bad cursor")
)

// Errors of a payment provider.
var (
	// ErrBadNotice: the notice has no valid signature of the provider, or the signature is too old.
	ErrBadNotice = errors.New("bad notice")
	// ErrForeignNotice: the notice is about another account or mode, or can't be read.
	ErrForeignNotice = errors.New("foreign notice")
	// ErrNotOpened: the provider has answered that it does not open a payment.
	ErrNotOpened = errors.New("the provider does not open the payment")
	// ErrPaymentRefused: the provider does not take a payment, and will not take it later either.
	ErrPaymentRefused = errors.New("the provider refuses the payment")
	// ErrRefundRefused: the provider will not send this money back.
	ErrRefundRefused = errors.New("the provider refuses the refund")
)
