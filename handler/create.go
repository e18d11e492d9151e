package handler

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// termsBody is what new sales and new campaigns have in common, as operators write it.
type termsBody struct {
	Title             string     `json:"title"`
	Description       string     `json:"description"`
	ImageURL          string     `json:"image_url"`
	Currency          string     `json:"currency"`
	StartsAt          time.Time  `json:"starts_at"`
	EndsAt            time.Time  `json:"ends_at"`
	LimitPerUser      int        `json:"limit_per_user"`
	PayTimeoutSeconds int        `json:"pay_timeout_seconds"`
	Shards            int        `json:"parts"`
	Mode              model.Mode `json:"mode"`
	EntriesAt         time.Time  `json:"entries_at"`
	CallSeconds       int        `json:"call_seconds"`
	Beacon            bool       `json:"beacon"`
	EntryWork         int64      `json:"entry_work"`
}

// usualTerms returns the values of the fields that an operator leaves out.
func usualTerms() termsBody {
	return termsBody{
		Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 30 * 60, Shards: 1, Mode: model.ModeRush, CallSeconds: service.DefaultCallSeconds,
	}
}

// sale returns a sale with these terms.
func (b termsBody) sale() model.Sale {
	return model.Sale{
		Title: b.Title, Description: b.Description, ImageURL: b.ImageURL, Currency: b.Currency, StartsAt: b.StartsAt, EndsAt: b.EndsAt,
		LimitPerUser: b.LimitPerUser, PayTimeoutSeconds: b.PayTimeoutSeconds, Shards: b.Shards, Mode: b.Mode, EntriesAt: b.EntriesAt,
		CallSeconds: b.CallSeconds, Beacon: b.Beacon, EntryWork: b.EntryWork,
	}
}

// created is something that operators have made: its view, and its path if it has one.
type created struct {
	view     any
	location string
}

// create answers with the thing that insert makes. With an Idempotency-Key, the id of the thing follows from the operator, the kind
// of the thing and the key. If an earlier request with this key has made the thing, the answer shows the existing thing, or is
// IdempotencyMismatch if it differs from what this request asks for. repeated finds a thing by its id; its verdict is NotFound if
// there is none.
func create(
	c *gin.Context, ids model.OrderIDs, kind string, repeated func(id string) (created, model.Verdict, error),
	insert func(id, actor string) (created, model.Verdict, *service.Invalid, error),
) {
	key, ok := idempotencyKey(c)
	if !ok {
		return
	}
	actor, id := middleware.IdentityOf(c).UserID, ""
	send := func(made created, verdict model.Verdict, err error) {
		if err == nil && verdict == model.Accepted && made.location != "" {
			c.Header("Location", made.location)
		}
		answer(c, http.StatusCreated, made.view, verdict, err)
	}
	replayed := func() bool {
		if key == "" {
			return false
		}
		made, verdict, err := repeated(id)
		switch {
		case err == nil && verdict == model.NotFound:
			return false
		case err == nil && verdict == model.Accepted:
			c.Header("Idempotent-Replayed", "true")
		}
		send(made, verdict, err)
		return true
	}
	if key != "" {
		id = ids.Sale(actor, kind+key)
	}
	if replayed() {
		return
	}
	made, verdict, invalid, err := insert(id, actor)
	switch {
	case (err != nil || verdict == model.TooMany) && replayed(): // a concurrent request with this key made it
	case err == nil && invalid != nil:
		refuseInvalid(c, invalid)
	default:
		send(made, verdict, err)
	}
}
