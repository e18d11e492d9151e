package fault

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"flashsale/test/kit/shop"
)

// doorRows are attacks on the checks that run before all handlers.
var doorRows = []row{
	{31, "bodies of every form at every route: parts, without end, compressed", "refused or left unread; flat memory, no file left", formsOfBodies},
	{32, "a flood of strangers: anonymous requests, callbacks unsigned, tokens forged", "429 or 401; signed callbacks, operators and /readyz get through", floodOfStrangers},
}

// formsOfBodies takes the routes from the engine's OpenAPI document, so that new routes are attacked as well.
func formsOfBodies(d *drill) {
	d.stores()
	folder := d.TempDir()
	a := d.StartWith(append([]string{"TMPDIR=" + folder}, leanly...))
	d.sell(20, a)
	order := d.buy("owner", "key", a.URL)
	d.attempts = []shop.Attempt{order}
	fill := strings.NewReplacer("{sale}", d.sale, "{id}", order.OrderID, "{payment}", d.StartPayment(order).ID,
		"{path}", pathOf(shop.Secret, time.Now(), "owner", d.sale, time.Hour))
	tokens := map[bool]string{true: d.Operator(a.URL), false: d.Token("owner")}
	described, err := ask(d.Context(), d.manyConnections(), http.MethodGet, a.URL+"/openapi.json", nil)
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err != nil || json.Unmarshal(described.body, &document) != nil || len(document.Paths) < 40 {
		d.Fatalf("the description: %d %v, %d paths", described.status, err, len(document.Paths))
	}

	const (
		large = 96 << 20 // more than a multipart form keeps in memory
		end   = "\r\n--b--\r\n"
		part  = "--b\r\nContent-Disposition: form-data; name=\"choice\"; filename=\"f\"\r\n\r\n"
	)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := io.Copy(w, io.LimitReader(filled(`{"quantity":1`, ' '), large)); err != nil || w.Close() != nil {
		d.Fatal(err)
	}
	forms := map[string]struct {
		contentType, encoding string
		body                  func() io.Reader
		announced             int64 // Content-Length; -1: in chunks
	}{
		"parts": {"multipart/form-data; boundary=b", "", func() io.Reader {
			return io.MultiReader(io.LimitReader(filled(part, 'x'), large-int64(len(end))), strings.NewReader(end))
		}, large},
		"a form without end":    {"application/x-www-form-urlencoded", "", func() io.Reader { return filled("choice=", 'x') }, -1},
		"an object without end": {"application/json", "", func() io.Reader { return filled(`{"quantity":1`, ' ') }, -1},
		"a compressed object":   {"application/json", "gzip", func() io.Reader { return bytes.NewReader(bomb.Bytes()) }, int64(bomb.Len())},
	}
	parameter := regexp.MustCompile(`\{\w+\}`)
	told, slowest := map[int]int{}, time.Duration(0)
	attack := func() {
		for path, operations := range document.Paths {
			for method := range operations {
				method = strings.ToUpper(method)
				if method == "PARAMETERS" || strings.HasSuffix(path, "/close") { // the sale has to stay open
					continue
				}
				where, err := url.Parse(a.URL + parameter.ReplaceAllString(fill.Replace(path), "AAAA"))
				d.ok(err)
				for name, form := range forms {
					start := time.Now()
					req := &http.Request{
						Method: method, URL: where, Body: io.NopCloser(form.body()), ContentLength: form.announced,
						Header: http.Header{
							"Authorization": {"Bearer " + tokens[strings.Contains(path, "/admin/")]},
							"Content-Type":  {form.contentType}, "Content-Encoding": {form.encoding},
						},
					}
					status, err := d.push(where.Host, req.Write)
					slowest = max(slowest, time.Since(start))
					if err != nil || status >= http.StatusInternalServerError {
						d.wrong(status)("%s %s, %s: %d %v", method, path, name, status, err)
					}
					told[status]++
					if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
						d.Fatalf("%s %s, %s: left %d files, %v", method, path, name, len(files), err)
					}
				}
			}
		}
		d.Must(http.StatusOK, http.MethodPost, a.URL+"/api/v1/admin/sales/"+d.sale+"/resume", d.Operator(a.URL), nil)
	}
	d.flat(a, size(1, 10), attack)
	d.finish("%d forms at %d paths: %d times 413, %d times 415; the slowest answer after %s",
		len(forms), len(document.Paths), told[413], told[415], ms(slowest))
}

// filled returns a reader of head, followed by one letter without end.
func filled(head string, letter byte) io.Reader {
	return io.MultiReader(strings.NewReader(head), letters(letter))
}

type letters byte

func (l letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(l)
	}
	return len(p), nil
}

// floodOfStrangers has clients without valid credentials send as many requests as they can to five routes, while
// payments are confirmed and a sale is paused and resumed.
func floodOfStrangers(d *drill) {
	d.stores()
	a := d.Start("--limit-rate", "50", "--limit-burst", "50", "--ip-rate", "50") // see limit
	const rounds, limit = 60, 50
	d.sell(60, d.Start()) // for buyers and checks, without limits
	d.attempts = d.Rush(d.sale, "payer", d.quota/2, nil, d.urls...)
	var payments []shop.Payment
	for _, b := range d.attempts {
		payments = append(payments, d.StartPayment(b))
	}
	operator := d.Operator(d.urls[0])

	client := d.manyConnections()
	var mu sync.Mutex
	strangers := map[int]int{}
	attacks := []struct{ method, path, token string }{
		{http.MethodGet, "/api/v1/time", ""},
		{http.MethodPost, "/api/v1/payments/callback", ""},
		{http.MethodGet, "/api/v1/admin/stats", "forged"},
		{http.MethodPost, "/api/v1/admin/staff", "fs_forged"},
		{http.MethodGet, "/readyz", ""},
	}
	began := time.Now()
	end := d.meanwhile(32, time.Nanosecond, func(stranger, round int) {
		at := attacks[(stranger+round)%len(attacks)]
		r, err := ask(d.Context(), client, at.method, a.URL+at.path, strings.NewReader("{}"),
			"Content-Type", "application/json", "Authorization", "Bearer "+at.token)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			strangers[r.status]++
		}
	})
	d.until(recoveryTime, "the flood is refused", func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return strangers[http.StatusTooManyRequests] > 100, nil
	})
	refused := map[string]int{}
	want := func(what string, status int, doc shop.Document, err error) {
		if err != nil || status != http.StatusOK {
			refused[what]++
			d.wrong(status)("%s: %d %v %v", what, status, doc["code"], err)
		}
	}
	for i := range rounds {
		n := i % len(payments)
		status, doc, err := d.Callback(a.URL, payments[n].ID, shop.Transaction(n, 0), shop.PriceCents) // each of them twice
		want("a callback", status, doc, err)
		change := a.URL + "/api/v1/admin/sales/" + d.sale + "/" + []string{"pause", "resume"}[i%2]
		status, doc, err = d.Call(http.MethodPost, change, operator, nil)
		want("an operator", status, doc, err)
		status, doc, err = d.Call(http.MethodGet, a.URL+"/readyz", "", nil)
		want("/readyz", status, doc, err)
	}
	end()
	if most := limit + int(limit*time.Since(began).Seconds()) + 1; strangers[http.StatusUnauthorized] > most {
		d.Errorf("strangers were told 401 %d times, want at most %d", strangers[http.StatusUnauthorized], most)
	}
	d.finish("strangers: %d times 429, %d times 401; refused of %d each: %d callbacks, %d operators, %d /readyz",
		strangers[http.StatusTooManyRequests], strangers[http.StatusUnauthorized], rounds,
		refused["a callback"], refused["an operator"], refused["/readyz"])
}
