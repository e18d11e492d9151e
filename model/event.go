package model

import "time"

type EventType string

const (
	EventConfirmed  EventType = "order.confirmed" // the order was made
	EventPaid       EventType = "order.paid"
	EventCancelled  EventType = "order.cancelled"
	EventExpired    EventType = "order.expired"
	EventRefunded   EventType = "order.refunded"
	EventRefundDue  EventType = "refund.due" // of a payment: its money has to go back
	EventSaleOpened EventType = "sale.opened"
	EventSoldOut    EventType = "sale.sold_out"
	EventSaleEnded  EventType = "sale.ended"
)

// Event is a change that other systems can hear of.
type Event struct {
	Number  int64 // place in the feed, from 1
	Type    EventType
	At      time.Time // by the database's clock
	SaleID  string
	Order   *Order   // with its status after the event, or for EventRefundDue its present one; nil for events of a sale
	Payment *Payment // of EventRefundDue
}

type EndpointState string

const (
	EndpointOn   EndpointState = "on"
	EndpointOff  EndpointState = "off"  // switched off, by an operator or after it failed for too long
	EndpointGone EndpointState = "gone" // it has answered 410
)

// Endpoint is a URL to which events are sent.
type Endpoint struct {
	ID, URL      string
	Rate         int // the most events per second, on average
	State        EndpointState
	Reason       string // why the engine has stopped sending to it; otherwise empty
	Secret       string // sealed
	OldSecret    string // sealed; also signs until OldUntil
	OldUntil     time.Time
	Position     int64     // events up to this number need not be sent
	SendingTo    int64     // number of the last event of the batch that is being sent; 0: none
	Tries        int       // failed tries in a row
	FailingSince time.Time // when the first of these tries began; zero: there are none
	CreatedAt    time.Time
}

// Delivery is one try to send a batch of events to an endpoint.
type Delivery struct {
	ID          int64
	EndpointID  string
	First, Last int64 // numbers of the first and the last event
	At          time.Time
	Took        time.Duration
	Status      int    // of the HTTP answer; 0: none came
	Answer      string // the beginning of the answer's body, or what went wrong
}

// Delivered reports whether the endpoint has taken the events.
func (d Delivery) Delivered() bool { return 200 <= d.Status && d.Status < 300 }

// Undeliverable reports whether the endpoint has refused a single event as too large.
func (d Delivery) Undeliverable() bool { return d.Status == 413 && d.First == d.Last }

// EndpointChange changes an endpoint. Zero fields change nothing. The tags are the names in the API.
type EndpointChange struct {
	URL    string        `json:"url"`
	Rate   int           `json:"rate"`
	State  EndpointState `json:"state"`
	Secret string        `json:"-"` // sealed; the present secret becomes the old one
}
