package fault

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

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

// knock buys one unit with a path that it issues itself: one request, where shop.Buy makes two. a receives the answer.
func knock(ctx context.Context, client *http.Client, s *shop.Shop, a *shop.Attempt, sale string, headers ...string) (reply, error) {
	path, _ := auth.NewPaths([]byte(shop.Secret), time.Now).Issue(a.User, sale, time.Minute)
	a.Invoked = time.Now()
	r, err := ask(ctx, client, http.MethodPost, a.URL+"/api/v1/sales/"+sale+"/"+path+"/orders", strings.NewReader(`{"quantity":1}`),
		append([]string{"Authorization", "Bearer " + s.Token(a.User), "Content-Type", "application/json", "Idempotency-Key", a.Key}, headers...)...)
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

// manyConnections returns a client that opens as many connections as its requests need.
func (d *drill) manyConnections(change ...func(*http.Transport)) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 20_000}
	for _, f := range change {
		f(transport)
	}
	d.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}
