package handler

import (
	"math"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Endpoints shows the feed of events, and lets operators manage the endpoints to which events are sent.
type Endpoints struct{ Service *service.Endpoints }

// events answers with a page of the feed: the events whose numbers follow the query's "after", which is 0 by default.
func (e *Endpoints) events(c *gin.Context) {
	after, err := strconv.ParseInt(c.DefaultQuery("after", "0"), 10, 64)
	if err != nil || after < 0 {
		refuseInvalid(c, &service.Invalid{Field: "after", Reason: notAnEvent})
		return
	}
	_, limit, ok := readPage(c)
	if !ok {
		return
	}
	list, err := e.Service.Events(c.Request.Context(), after, limit)
	if len(list) > 0 {
		after = list[len(list)-1].Number
	}
	answer(c, http.StatusOK, gin.H{"events": each(list, service.ViewEvent), "next": strconv.FormatInt(after, 10)}, model.Accepted, err)
}

type endpointView struct {
	ID           string              `json:"id"`
	URL          string              `json:"url"`
	Rate         int                 `json:"rate"`
	State        model.EndpointState `json:"state"`
	Reason       string              `json:"reason,omitempty"`
	Position     string              `json:"position"`
	Tries        int                 `json:"tries,omitempty"`
	FailingSince *stamp              `json:"failing_since,omitempty"`
	CreatedAt    stamp               `json:"created_at"`
	Secret       string              `json:"secret,omitempty"`
}

func viewEndpoint(e model.Endpoint, secret string) endpointView {
	return endpointView{
		ID: e.ID, URL: e.URL, Rate: e.Rate, State: e.State, Reason: e.Reason, Position: strconv.FormatInt(e.Position, 10),
		Tries: e.Tries, FailingSince: optional(e.FailingSince), CreatedAt: stamp(e.CreatedAt), Secret: secret,
	}
}

func (e *Endpoints) list(c *gin.Context) {
	list, err := e.Service.Store.Endpoints(c.Request.Context())
	view := func(e model.Endpoint) endpointView { return viewEndpoint(e, "") }
	answer(c, http.StatusOK, gin.H{"endpoints": each(list, view)}, model.Accepted, err)
}

type endpointBody struct {
	URL  string `json:"url"`
	Rate int    `json:"rate"`
}

func (e *Endpoints) create(c *gin.Context, body endpointBody) {
	view := func(made endpointView) (any, string) { return made, "" }
	create(c, view, e.Service.IDs, "endpoint ", func(id string) (endpointView, model.Verdict, error) {
		made, secret, verdict, err := e.Service.Repeated(c.Request.Context(), id, body.URL, body.Rate)
		return viewEndpoint(made, secret), verdict, err
	}, func(id, actor string) (endpointView, model.Verdict, *service.Invalid, error) {
		made, secret, verdict, invalid, err := e.Service.Create(c.Request.Context(), id, body.URL, body.Rate, actor)
		return viewEndpoint(made, secret), verdict, invalid, err
	})
}

func (e *Endpoints) change(c *gin.Context, change model.EndpointChange) {
	if change.State != "" && change.State != model.EndpointOn && change.State != model.EndpointOff {
		refuseInvalid(c, &service.Invalid{Field: "state", Reason: notAChoice, Value: "on, off"})
		return
	}
	changed, verdict, invalid, err := e.Service.Change(c.Request.Context(), c.Param("endpoint"), change, userOf(c))
	answerChange(c, http.StatusOK, viewEndpoint(changed, ""), verdict, invalid, err)
}

func (e *Endpoints) renewSecret(c *gin.Context) {
	changed, secret, verdict, err := e.Service.NewSecret(c.Request.Context(), c.Param("endpoint"), userOf(c))
	answer(c, http.StatusOK, viewEndpoint(changed, secret), verdict, err)
}

func (e *Endpoints) remove(c *gin.Context) {
	verdict, err := e.Service.Remove(c.Request.Context(), c.Param("endpoint"), userOf(c))
	answer(c, http.StatusOK, gin.H{"id": c.Param("endpoint")}, verdict, err)
}

type deliveryView struct {
	ID     string `json:"id"`
	First  string `json:"first"`
	Last   string `json:"last"`
	At     stamp  `json:"at"`
	TookMs int64  `json:"took_ms"`
	Status int    `json:"status,omitempty"`
	Answer string `json:"answer"`
}

func viewDelivery(d model.Delivery) deliveryView {
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return deliveryView{ID: text(d.ID), First: text(d.First), Last: text(d.Last), At: stamp(d.At), TookMs: d.Took.Milliseconds(), Status: d.Status, Answer: d.Answer}
}

// deliveries answers with a page of an endpoint's deliveries, the newest first.
func (e *Endpoints) deliveries(c *gin.Context) {
	answerPage(c, "deliveries", viewDelivery, func(cursor string, limit int) (list []model.Delivery, next string, err error) {
		below := int64(math.MaxInt64)
		if cursor != "" {
			if below, err = strconv.ParseInt(cursor, 10, 64); err != nil {
				return nil, "", model.ErrBadCursor
			}
		}
		list, verdict, err := e.Service.Deliveries(c.Request.Context(), c.Param("endpoint"), below, limit+1)
		if err == nil && verdict != model.Accepted {
			err = middleware.Refusal{Verdict: verdict}
		}
		if len(list) > limit {
			list, next = list[:limit], strconv.FormatInt(list[limit-1].ID, 10)
		}
		return list, next, err
	})
}

// redeliver sends the events of a delivery again, and answers with the new delivery.
func (e *Endpoints) redeliver(c *gin.Context) {
	id, err := strconv.ParseInt(c.Param("delivery"), 10, 64)
	if err != nil {
		refuse(c, model.NotFound)
		return
	}
	show(c, viewDelivery)(e.Service.Redeliver(c.Request.Context(), c.Param("endpoint"), id))
}
