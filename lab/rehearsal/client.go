package rehearsal

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
)

const (
	// patience bounds the wait for an answer, except for a stream. It is that of web/assets/api.js.
	patience = 15 * time.Second
	// maxAnswer bounds the bytes that are read of an answer.
	maxAnswer = 1 << 20
)

// noAnswer is the code of a request without an answer.
const noAnswer = model.Verdict("network")

// lane sends requests to the shop. slots bounds the requests, and so the connections, that are in use at once.
type lane struct {
	http.RoundTripper
	slots chan struct{}
}

// newCrowd makes a crowd with at most this many connections. If buyers open streams, half of the connections are for streams,
// because a stream keeps its connection. If some buyers are slow, a quarter of the other connections is for these buyers.
func newCrowd(base string, connections int, s *Shape, tokens *auth.Tokens, now func() time.Time) (c *crowd, err error) {
	streams, slow := 0, 0
	if s.Walk == WholeWalk {
		streams = connections / 2
	}
	quick := connections - streams
	if s.Slow > 0 {
		slow = quick / 4
	}
	c = &crowd{
		shape: s, base: strings.TrimRight(base, "/"), tokens: tokens, tally: newTally(s.Lasts + linger), now: now,
		quick: newLane(quick-slow, nil), slow: newLane(slow, dialSlowly), streams: newLane(streams, nil),
	}
	c.visitor, err = c.token(visitor)
	return c, err
}

// newLane makes a lane. A connection serves one request at a time: with a TLSClientConfig, a Transport speaks no HTTP/2.
func newLane(connections int, dial func(ctx context.Context, network, address string) (net.Conn, error)) lane {
	return lane{&http.Transport{
		DialContext: dial, MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, DisableCompression: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
	}, make(chan struct{}, connections)}
}

// close closes the connections. It may be called after run.
func (c *crowd) close() {
	for _, l := range []lane{c.quick, c.slow, c.streams} {
		(&http.Client{Transport: l.RoundTripper}).CloseIdleConnections()
	}
}

// of returns the lane of a buyer's requests other than the stream.
func (c *crowd) of(b *buyer) lane {
	if b.slow {
		return c.slow
	}
	return c.quick
}

// request is a request of a buyer. The path begins with a slash.
type request struct {
	stage        Stage
	method, path string
	key          string // the Idempotency-Key
	body         string
	form         bool // the body is a form, else it is JSON
	public       bool // sent with the visitor's token instead of the buyer's own
}

// answer is the answer to a request.
type answer struct {
	status int           // 0: no answer, or an invalid one
	wait   time.Duration // Retry-After
	doc    document
}

// document has the fields that a buyer reads in a JSON answer.
type document struct {
	ID     string          `json:"id"`
	Status json.RawMessage `json:"status"` // a text in an order, a number in a problem
	Reason model.Verdict   `json:"reason"`
	Code   model.Verdict   `json:"code"`
	Path   string          `json:"path"`
	PayURL string          `json:"pay_url"`
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// order returns the status of the order in the answer.
func (a answer) order() model.OrderStatus {
	return model.OrderStatus(strings.Trim(string(a.doc.Status), `"`))
}

// code returns the code of a refusal: noAnswer if there is no answer, the HTTP status if the answer has no code in it.
func (a answer) code() model.Verdict {
	if a.status == 0 {
		return noAnswer
	}
	return cmp.Or(a.doc.Code, model.Verdict(strconv.Itoa(a.status)))
}

// String returns the words under which the report counts the answer.
func (a answer) String() string {
	if a.status == 0 {
		return "no answer"
	}
	return strings.TrimSpace(strconv.Itoa(a.status) + " " + string(a.doc.Code))
}

// do sends a request that was due at the time "due". It records how late the request was sent, the answer, and how long after
// "due" the answer came. If ctx ends meanwhile, the answer is not recorded, and may be missing.
func (c *crowd) do(ctx context.Context, b *buyer, due time.Time, r request) (a answer) {
	slots := c.of(b).slots
	select {
	case slots <- struct{}{}:
	default:
		c.tally.waited.Add(1)
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return answer{}
		}
	}
	defer func() { <-slots }()
	c.tally.lag.add("", c.now().Sub(due))
	a = c.send(ctx, b, r)
	if ctx.Err() == nil {
		c.tally.stages[r.stage].add(a.String(), c.now().Sub(due))
	}
	return a
}

func (c *crowd) send(ctx context.Context, b *buyer, r request) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := c.request(ctx, b, r)
	if err != nil {
		return answer{}
	}
	res, err := c.of(b).RoundTrip(req)
	if err != nil {
		return answer{}
	}
	defer func() { _ = res.Body.Close() }()
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	a = answer{status: res.StatusCode, wait: time.Duration(seconds) * time.Second}
	body := http.MaxBytesReader(nil, res.Body, maxAnswer)
	if strings.Contains(res.Header.Get("Content-Type"), "json") && res.Header.Get("Content-Encoding") == "" {
		err = json.NewDecoder(body).Decode(&a.doc)
	}
	if _, rest := io.Copy(io.Discard, body); err != nil || rest != nil {
		return answer{} // it was cut off, is too long, or is not valid JSON
	}
	return a
}

// request builds an HTTP request with a token and the buyer's address.
func (c *crowd) request(ctx context.Context, b *buyer, r request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	// Without a value this header is not sent, but lets Transport repeat the request if the server has closed an idle connection.
	h["X-Idempotency-Key"] = nil
	h.Set("User-Agent", "flashsale-rehearse") // names the tool in access logs
	h.Set("X-Forwarded-For", b.address)       // ignored unless --trusted-proxies name this machine
	token := b.token
	if r.public {
		token = c.visitor
		h.Set("Accept-Encoding", "gzip")
	}
	h.Set("Authorization", "Bearer "+token)
	if r.key != "" {
		h.Set("Idempotency-Key", r.key)
	}
	switch {
	case r.form:
		h.Set("Content-Type", "application/x-www-form-urlencoded")
	case r.body != "":
		h.Set("Content-Type", "application/json")
	}
	return req, nil
}
