package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"flashsale/internal/observe"
	"flashsale/internal/webhook"
	"flashsale/model"
	"flashsale/service/auth"
)

const (
	maxEndpoints       = 100           // in all
	maxURL             = 500           // characters
	maxRate, usualRate = 100_000, 1000 // events a second
	// batchEvents is the most events in one message. messageBytes is the most bytes of a message that has several events.
	batchEvents, messageBytes = 500, 64 << 10
	// sendLease is how long an instance reserves an endpoint, longer than a try takes. After that, any instance can send the batch.
	sendLease = 30 * time.Second
	// The average pause after a failure grows from firstPause to lastPause. An endpoint that has failed for giveUp is switched off.
	firstPause, lastPause = 2 * time.Second, 30 * time.Minute
	giveUp                = 24 * time.Hour
)

// EndpointStore keeps events, endpoints and deliveries in the database.
type EndpointStore interface {
	NumberEvents(ctx context.Context) (more bool, err error)
	Events(ctx context.Context, after int64, limit int) ([]model.Event, error)
	ForgetEvents(ctx context.Context, age time.Duration) (more bool, err error)
	Endpoints(ctx context.Context) ([]model.Endpoint, error)
	DueEndpoints(ctx context.Context) ([]model.Endpoint, error)
	CreateEndpoint(ctx context.Context, e model.Endpoint, most int, actor string) (made model.Endpoint, ok bool, err error)
	ChangeEndpoint(ctx context.Context, id string, c model.EndpointChange, actor string) (changed model.Endpoint, ok bool, err error)
	RemoveEndpoint(ctx context.Context, id, actor string) (ok bool, err error)
	TakeEndpoint(ctx context.Context, id string, lease time.Duration) (e model.Endpoint, ok bool, err error)
	FreeEndpoint(ctx context.Context, id string) error
	SendTo(ctx context.Context, id string, last int64) error
	FinishDelivery(ctx context.Context, d model.Delivery, pause time.Duration, state model.EndpointState, reason string) error
	NoteDelivery(ctx context.Context, d model.Delivery) (id int64, err error)
	Deliveries(ctx context.Context, endpointID string, below int64, limit int) ([]model.Delivery, error)
	Delivery(ctx context.Context, endpointID string, id int64) (d model.Delivery, ok bool, err error)
}

// Sender sends one message.
type Sender interface {
	Send(ctx context.Context, url string, secrets []string, id string, body []byte) (status int, answer string)
}

// Endpoints manages the endpoints and sends events to them.
type Endpoints struct {
	Store   EndpointStore
	Sender  Sender
	Seals   *auth.Seals
	IDs     model.OrderIDs
	Private bool          // endpoints may be on this machine or in a private network, and may be reached without TLS
	Kept    time.Duration // how long events and deliveries are kept
	Now     func() time.Time
	Observe observe.All
	Log     *slog.Logger

	fits sync.Map // by an endpoint's id, the most events in a message, after the endpoint refused a message as too large
}

// Events returns a page of the feed: the events whose numbers are greater than "after", at most "limit" of them.
func (e *Endpoints) Events(ctx context.Context, after int64, limit int) ([]model.Event, error) {
	if err := e.Number(ctx); err != nil {
		return nil, err
	}
	return e.Store.Events(ctx, after, limit)
}

// Number gives all committed events their places in the feed.
func (e *Endpoints) Number(ctx context.Context) (err error) {
	for more := true; more && err == nil; {
		more, err = e.Store.NumberEvents(ctx)
	}
	return err
}

// Forget deletes events and deliveries that are older than Kept. Only events with a place in the feed are deleted, so Forget
// first gives all events their places.
func (e *Endpoints) Forget(ctx context.Context) error {
	err := e.Number(ctx)
	for more := true; more && err == nil; {
		more, err = e.Store.ForgetEvents(ctx, e.Kept)
	}
	return err
}

// Due returns the endpoints to which events can be sent now.
func (e *Endpoints) Due(ctx context.Context) ([]model.Endpoint, error) {
	all, err := e.Store.Endpoints(ctx)
	if err != nil || len(all) == 0 { // without endpoints, events need no places before the feed is read
		return nil, err
	}
	if err := e.Number(ctx); err != nil {
		return nil, err
	}
	return e.Store.DueEndpoints(ctx)
}

// Repeated returns the endpoint that an earlier request created under an id, and its secret. The verdict is Accepted, NotFound,
// or IdempotencyMismatch if the endpoint has another URL or rate than is asked for now, or has got a new secret since.
func (e *Endpoints) Repeated(ctx context.Context, id, address string, rate int) (made model.Endpoint, secret string, verdict model.Verdict, err error) {
	made, ok, err := e.find(ctx, id)
	switch {
	case err != nil || !ok:
		return made, "", model.NotFound, err
	case made.URL != address || made.Rate != cmp.Or(rate, usualRate) || made.OldSecret != "":
		return made, "", model.IdempotencyMismatch, nil
	}
	secret, err = e.Seals.Open(made.Secret)
	return made, secret, model.Accepted, err
}

// Create makes an endpoint under the given id or, if this is empty, under a new id, and returns its secret. A rate of 0 stands
// for usualRate. The endpoint gets the events from now on. The verdict is Accepted; TooMany if there are maxEndpoints already; or
// BadRequest with the invalid field.
func (e *Endpoints) Create(
	ctx context.Context, id, address string, rate int, actor string,
) (made model.Endpoint, secret string, verdict model.Verdict, invalid *Invalid, err error) {
	rate = cmp.Or(rate, usualRate)
	if invalid = e.check(address, rate); invalid != nil {
		return made, "", model.BadRequest, invalid, nil
	}
	secret = webhook.NewSecret()
	wanted := model.Endpoint{ID: cmp.Or(id, model.NewSaleID()), URL: address, Rate: rate, Secret: e.Seals.Seal(secret)}
	made, ok, err := e.Store.CreateEndpoint(ctx, wanted, maxEndpoints, actor)
	return made, secret, acceptedIf(ok, model.TooMany), nil, err
}

func (e *Endpoints) check(address string, rate int) *Invalid {
	if !e.allowed(address) {
		return &Invalid{Field: "url", Reason: BadEndpoint, Max: maxURL}
	}
	return Outside("rate", int64(rate), 1, maxRate)
}

// allowed reports whether an endpoint may have this URL. The IP addresses of a host name are checked when a message is sent.
func (e *Endpoints) allowed(address string) bool {
	u, err := url.Parse(address)
	if err != nil || len(address) > maxURL || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16); err != nil || port == 0 {
		return false
	}
	if strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	if e.Private {
		return u.Scheme == "http" || u.Scheme == "https"
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" && !strings.EqualFold(u.Hostname(), "localhost") && (err != nil || webhook.IsPublic(ip))
}

// Change changes the URL, rate and state of an endpoint; what c does not have stays as it is. The verdict is Accepted; NotFound;
// or BadRequest with the invalid field.
func (e *Endpoints) Change(ctx context.Context, id string, c model.EndpointChange, actor string) (model.Endpoint, model.Verdict, *Invalid, error) {
	if invalid := e.check(cmp.Or(c.URL, "https://unchanged.example"), cmp.Or(c.Rate, usualRate)); invalid != nil {
		return model.Endpoint{}, model.BadRequest, invalid, nil
	}
	changed, ok, err := e.Store.ChangeEndpoint(ctx, id, c, actor)
	return changed, acceptedIf(ok, model.NotFound), nil, err
}

// NewSecret replaces an endpoint's secret. Until OldUntil, messages have two signatures. The verdict is Accepted or NotFound.
func (e *Endpoints) NewSecret(ctx context.Context, id, actor string) (changed model.Endpoint, secret string, verdict model.Verdict, err error) {
	secret = webhook.NewSecret()
	changed, ok, err := e.Store.ChangeEndpoint(ctx, id, model.EndpointChange{Secret: e.Seals.Seal(secret)}, actor)
	return changed, secret, acceptedIf(ok, model.NotFound), err
}

// Remove deletes an endpoint. The verdict is Accepted or NotFound.
func (e *Endpoints) Remove(ctx context.Context, id, actor string) (model.Verdict, error) {
	ok, err := e.Store.RemoveEndpoint(ctx, id, actor)
	return acceptedIf(ok, model.NotFound), err
}

// Deliveries returns deliveries of an endpoint, the newest first: those whose ids are less than "below", at most "limit" of them.
// The verdict is Accepted or NotFound.
func (e *Endpoints) Deliveries(ctx context.Context, id string, below int64, limit int) ([]model.Delivery, model.Verdict, error) {
	if _, ok, err := e.find(ctx, id); err != nil || !ok {
		return nil, model.NotFound, err
	}
	list, err := e.Store.Deliveries(ctx, id, below, limit)
	return list, model.Accepted, err
}

func (e *Endpoints) find(ctx context.Context, id string) (found model.Endpoint, ok bool, err error) {
	list, err := e.Store.Endpoints(ctx)
	i := slices.IndexFunc(list, func(endpoint model.Endpoint) bool { return endpoint.ID == id })
	if err != nil || i < 0 {
		return found, false, err
	}
	return list[i], true, nil
}

// Redeliver sends the events of a delivery once more, under the same message id, and returns the new delivery. An endpoint that
// takes the message, and whose next event is among these events, goes on behind them. The verdict is Accepted, whatever the
// endpoint answers. It is NotFound if there is no such endpoint or delivery, or if the events were deleted for their age.
func (e *Endpoints) Redeliver(ctx context.Context, id string, deliveryID int64) (model.Delivery, model.Verdict, error) {
	d, ok, err := e.Store.Delivery(ctx, id, deliveryID)
	if err != nil || !ok {
		return d, model.NotFound, err
	}
	endpoint, ok, err := e.find(ctx, id)
	if err != nil || !ok {
		return d, model.NotFound, err
	}
	events, err := e.Store.Events(ctx, d.First-1, int(min(d.Last-d.First+1, batchEvents)))
	if err != nil || len(events) == 0 || events[0].Number != d.First { // the events were deleted for their age
		return d, model.NotFound, err
	}
	tried := e.try(ctx, endpoint, events)
	// The endpoint may take longer than the client of Redeliver waits. The delivery is recorded in any case.
	tried.ID, err = e.Store.NoteDelivery(context.WithoutCancel(ctx), tried)
	return tried, model.Accepted, err
}

// Deliver sends the next events to an endpoint. It does nothing if the endpoint is reserved, if it is not on, or if its pause is
// not over. If more is true, events may still wait, and the caller tries again after the returned pause. A failure of the
// endpoint is no error.
func (e *Endpoints) Deliver(ctx context.Context, id string) (pause time.Duration, more bool, err error) {
	endpoint, ok, err := e.Store.TakeEndpoint(ctx, id, sendLease)
	if err != nil || !ok {
		return 0, false, err
	}
	events, err := e.Store.Events(ctx, endpoint.Position, batchEvents)
	if err != nil {
		return 0, false, err
	}
	there := len(events)
	if endpoint.SendingTo > 0 { // the batch under way does not grow
		events = slices.DeleteFunc(events, func(event model.Event) bool { return event.Number > endpoint.SendingTo })
	}
	if len(events) == 0 { // no events wait, or the events of the batch under way were deleted for their age
		return 0, false, e.Store.FreeEndpoint(ctx, id)
	}
	if endpoint.SendingTo == 0 {
		events = e.fitting(id, events)
		if err := e.Store.SendTo(ctx, id, events[len(events)-1].Number); err != nil {
			return 0, false, err
		}
	}
	d := e.try(ctx, endpoint, events)
	if ctx.Err() != nil && !d.Delivered() {
		return 0, false, ctx.Err() // this instance stops; the batch can be sent again after the lease
	}
	tooLarge := d.Status == http.StatusRequestEntityTooLarge
	switch {
	case d.Undeliverable():
		e.Log.WarnContext(ctx, "an event is too large for an endpoint, which goes on without it; it can be sent again by hand", "endpoint", id, "event", d.First)
		e.fits.Delete(id) // the next message has the full size again
	case tooLarge: // the next messages have at most half as many events, rounded up
		e.fits.Store(id, (len(events)+1)/2)
		if err := e.Store.SendTo(ctx, id, 0); err != nil {
			return 0, false, err
		}
	}
	pause, state, reason := e.judge(endpoint, d, len(events))
	more = tooLarge || d.Delivered() && (there == batchEvents || len(events) < there)
	return pause, more, e.Store.FinishDelivery(context.WithoutCancel(ctx), d, pause, state, reason)
}

// fitting returns the first of the events: at least one, and no more than one message to the endpoint may have.
func (e *Endpoints) fitting(id string, events []model.Event) []model.Event {
	known, _ := e.fits.Load(id)
	if most, ok := known.(int); ok {
		events = events[:min(len(events), most)]
	}
	for len(events) > 1 && len(message(events)) > messageBytes {
		events = events[:(len(events)+1)/2]
	}
	return events
}

// judge returns what follows from a delivery: the pause before the next one, the endpoint's state, and the reason for that state.
func (e *Endpoints) judge(endpoint model.Endpoint, d model.Delivery, events int) (pause time.Duration, state model.EndpointState, reason string) {
	switch {
	case d.Delivered():
		return time.Duration(events) * time.Second / time.Duration(endpoint.Rate), model.EndpointOn, ""
	case d.Status == 410: // by the specification, the endpoint wants no more messages
		return 0, model.EndpointGone, "it answered 410"
	case d.Undeliverable():
		return firstPause, model.EndpointOn, ""
	case d.Status == http.StatusRequestEntityTooLarge:
		return 0, model.EndpointOn, ""
	case !endpoint.FailingSince.IsZero() && d.At.Sub(endpoint.FailingSince) > giveUp:
		return 0, model.EndpointOff, fmt.Sprintf("it failed for %s", giveUp)
	}
	pause = min(firstPause<<min(endpoint.Tries, 20), lastPause)
	return pause/2 + rand.N(pause), model.EndpointOn, "" //nolint:gosec // jitter, no secret
}

// try tries once to send events.
func (e *Endpoints) try(ctx context.Context, endpoint model.Endpoint, events []model.Event) model.Delivery {
	d := model.Delivery{EndpointID: endpoint.ID, First: events[0].Number, Last: events[len(events)-1].Number, At: e.Now()}
	secrets, err := e.secretsOf(endpoint)
	if err != nil {
		d.Answer = err.Error()
		return d
	}
	d.Status, d.Answer = e.Sender.Send(ctx, endpoint.URL, secrets, fmt.Sprintf("msg_%s_%d-%d", endpoint.ID, d.First, d.Last), message(events))
	d.Took = e.Now().Sub(d.At)
	outcome := observe.Undelivered
	if d.Delivered() {
		outcome = observe.Delivered
	}
	e.Observe.Note(observe.Event{Name: observe.Delivery, Label: outcome})
	return d
}

func (e *Endpoints) secretsOf(endpoint model.Endpoint) ([]string, error) {
	secret, err := e.Seals.Open(endpoint.Secret)
	if err != nil {
		return nil, fmt.Errorf("the endpoint needs a new secret: %w", err)
	}
	secrets := []string{secret}
	if endpoint.OldSecret != "" && e.Now().Before(endpoint.OldUntil) {
		if old, err := e.Seals.Open(endpoint.OldSecret); err == nil { // without it, only receivers that lack the new secret fail
			secrets = append(secrets, old)
		}
	}
	return secrets, nil
}
