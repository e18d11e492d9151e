package handler

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// termsBody has the fields that new sales and new campaigns have in common, as operators write them.
type termsBody struct {
	Title             string           `json:"title"`
	Description       string           `json:"description"`
	ImageURL          string           `json:"image_url"`
	Currency          string           `json:"currency"`
	StartsAt          time.Time        `json:"starts_at"`
	EndsAt            time.Time        `json:"ends_at"`
	LimitPerUser      int              `json:"limit_per_user"`
	PayTimeoutSeconds int              `json:"pay_timeout_seconds"`
	StockShown        model.StockShown `json:"stock_shown"`
	Shards            int              `json:"parts"`
	Mode              model.Mode       `json:"mode"`
	EntriesAt         time.Time        `json:"entries_at"`
	CallSeconds       int              `json:"call_seconds"`
	Beacon            bool             `json:"beacon"`
	EntryWork         int64            `json:"entry_work"`
}

// usualTerms returns terms with the defaults of fields that operators leave out.
func usualTerms() termsBody {
	return termsBody{
		Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 30 * 60, StockShown: model.StockExact, Shards: 1, Mode: model.ModeRush,
	}
}

// sale returns a sale with these terms.
func (b termsBody) sale() model.Sale {
	return model.Sale{
		Title: b.Title, Description: b.Description, ImageURL: b.ImageURL, Currency: b.Currency, StartsAt: b.StartsAt, EndsAt: b.EndsAt,
		LimitPerUser: b.LimitPerUser, PayTimeoutSeconds: b.PayTimeoutSeconds, Shards: b.Shards, Mode: b.Mode, EntriesAt: b.EntriesAt,
		CallSeconds: b.CallSeconds, Beacon: b.Beacon, EntryWork: b.EntryWork, StockShown: b.StockShown,
	}
}

// hasMode refuses terms without a mode, which the service would take for those of the usual mode.
func (b termsBody) hasMode(c *gin.Context) bool {
	if b.Mode == "" {
		refuseInvalid(c, &service.Invalid{Field: "mode", Reason: service.BadMode})
	}
	return b.Mode != ""
}

// create makes a thing, such as a sale, by the function insert, and answers with its view. With an Idempotency-Key, the id of the
// thing follows from the operator, the kind and the key; otherwise insert gets an empty id. The function repeated finds the thing
// that an earlier request made under the id. It returns Accepted, NotFound, or IdempotencyMismatch if the thing differs now.
func create[T any](
	c *gin.Context, view func(T) (view any, path string), ids model.OrderIDs, kind string,
	repeated func(id string) (T, model.Verdict, error), insert func(id, actor string) (T, model.Verdict, *service.Invalid, error),
) {
	key, ok := idempotencyKey(c)
	if !ok {
		return
	}
	actor, id := userOf(c), ""
	find := func() (T, model.Verdict, error) {
		if key == "" {
			return *new(T), model.NotFound, nil
		}
		return repeated(id)
	}
	if key != "" {
		id = ids.Sale(actor, kind+key)
	}
	made, verdict, err := find()
	replayed := err != nil || verdict != model.NotFound
	if !replayed {
		var invalid *service.Invalid
		made, verdict, invalid, err = insert(id, actor)
		if err != nil || verdict == model.TooMany {
			if other, was, broken := find(); broken != nil || was != model.NotFound { // the thing may exist all the same
				made, verdict, err, replayed = other, was, broken, true
			}
		} else if invalid != nil {
			refuseInvalid(c, invalid)
			return
		}
	}
	if err != nil || verdict != model.Accepted {
		answer(c, http.StatusCreated, nil, verdict, err)
		return
	}
	shown, path := view(made)
	if path != "" {
		c.Header("Location", path)
	}
	if replayed {
		c.Header("Idempotent-Replayed", "true")
	}
	c.JSON(http.StatusCreated, shown)
}
