package fault

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"flashsale/internal/sandbox"
	"flashsale/service/auth"
	"flashsale/test/kit/shop"
)

// reply is an HTTP answer and the time that it took.
type reply struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// code returns the code of a problem document.
func (r reply) code() string {
	_, after, _ := strings.Cut(string(r.body), `"code":"`)
	code, _, _ := strings.Cut(after, `"`)
	return code
}

func (r reply) String() string { return strings.TrimSpace(fmt.Sprint(r.status, " ", r.code())) }

// ask makes a request with these headers, given as names and values in turn.
func ask(ctx context.Context, client *http.Client, method, url string, body io.Reader, headers ...string) (r reply, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return r, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }()
	r.status, r.header = res.StatusCode, res.Header
	r.body, err = io.ReadAll(res.Body)
	r.took = time.Since(start)
	return r, err
}

// called makes a request with a buyer's token. A request without an answer fails the row.
func (d *drill) called(client *http.Client, method, address, token, body string, headers ...string) reply {
	d.Helper()
	headers = append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}, headers...)
	r, err := ask(d.Context(), client, method, address, strings.NewReader(body), headers...)
	if err != nil {
		d.FatalSlowf("%s %.100s: %v", method, address, err)
	}
	return r
}

// pathOf returns a user's path for a sale, issued at an instant and valid for ttl.
func pathOf(secret string, at time.Time, user, sale string, ttl time.Duration) string {
	path, _ := auth.NewPaths([]byte(secret), func() time.Time { return at }).Issue(user, sale, ttl)
	return path
}

// knock buys one unit with a path that it issues itself: one request, where shop.Buy makes two. a receives the answer.
func (d *drill) knock(client *http.Client, a *shop.Attempt, sale string, headers ...string) (reply, error) {
	url := a.URL + "/api/v1/sales/" + sale + "/" + pathOf(shop.Secret, time.Now(), a.User, sale, time.Minute) + "/orders"
	headers = append([]string{
		"Authorization", "Bearer " + d.Token(a.User), "Content-Type", "application/json", "Idempotency-Key", a.Key,
	}, headers...)
	a.Invoked = time.Now()
	r, err := ask(d.Context(), client, http.MethodPost, url, strings.NewReader(`{"quantity":1}`), headers...)
	a.Answered = time.Now()
	if err != nil {
		return r, err
	}
	a.Status, a.Code = r.status, r.code()
	if a.Status == http.StatusCreated || a.Status == http.StatusAccepted {
		a.OrderID = strings.TrimPrefix(r.header.Get("Location"), "/api/v1/orders/")
	}
	return r, nil
}

// signed returns the headers that sign a callback's body.
func signed(secret, body string) []string {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	return []string{"X-Timestamp", timestamp, "X-Signature", sandbox.Sign([]byte(secret), timestamp, []byte(body))}
}

// manyConnections returns a client that opens as many connections as its requests need.
func (d *drill) manyConnections(change ...func(*http.Transport)) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 20_000}
	for _, f := range change {
		f(transport)
	}
	d.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// raw sends the bytes of a request to an instance, since Go's client refuses some requests. It returns the status of the
// answer, or 0 without an answer.
func (d *drill) raw(address, request string) int {
	status, _ := d.push(strings.TrimPrefix(address, "http://"), func(w io.Writer) error {
		_, err := io.WriteString(w, request)
		return err
	})
	return status
}

// push writes a request to a connection of its own and returns the status of the answer. The answer may come long before
// the end of the request.
func (d *drill) push(address string, write func(w io.Writer) error) (status int, err error) {
	conn, err := new(net.Dialer).DialContext(d.Context(), "tcp", address)
	if err != nil {
		return 0, err
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer func() { _ = conn.Close() }() // also ends the write
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	writing.Go(func() { _ = write(conn) }) // fails when the engine stops reading
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, nil
}

// again returns what is wrong with a refusal for lack of capacity: it must be 429 or 503, with a Retry-After of at
// least 1.
func again(r reply) string {
	after := r.header.Get("Retry-After")
	if r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable || number(after) < 1 {
		return fmt.Sprintf("%s with Retry-After %q", r, after)
	}
	return ""
}
