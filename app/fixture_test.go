package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite" // the driver "sqlite"
	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
	"flashsale/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

const (
	testSecret    = "a secret of the tests, long enough to sign"
	adminPassword = "correct horse battery"
	// patience is how long a test waits for what must come: far above what a slow machine needs.
	patience = time.Minute
	// slowGate bounds an answer of Redis instead of the gate's own limit, beyond which buyers hear other answers.
	slowGate = 10 * time.Second
	// pollEvery is how often something is looked at that shows over HTTP only.
	pollEvery = 25 * time.Millisecond
)

// server is a running app and what a test knows of it.
type server struct {
	t    testing.TB
	app  *App
	url  string
	http *http.Client
	stop func() // ends it early; the end of the test does it anyway
}

// start boots an app on a free port: a fresh SQLite file, Redis in the process, limits out of the way, a wait for
// orders that a busy machine doesn't outlast, no demo sale, no ops address. The changes are made to these settings.
// When t ends, the app is stopped, and Run must have returned nil within the promised ten seconds.
func start(t testing.TB, changes ...func(*config.Settings)) *server {
	t.Helper()
	cmd, err := config.Parse([]string{
		"--http-addr=127.0.0.1:0", "--ops-addr=off", "--demo=false",
		"--database=sqlite:" + filepath.Join(t.TempDir(), "flashsale.db"),
		"--secret=" + testSecret, "--admin-password=" + adminPassword,
		"--limit-rate=1e6", "--limit-burst=1000000", "--ip-rate=0", "--user-requests=0", "--ack-wait=10s",
		"--log-format=text", "--log-level=error",
	}, func(string) string { return "" }, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		if change != nil {
			change(&cmd.Settings)
		}
	}
	if err := cmd.Settings.Validate(); err != nil {
		t.Fatal(err)
	}
	return boot(t, cmd.Settings, t.Output())
}

// boot runs an app with exactly these settings. A Redis that a busy machine slows down still counts as reachable.
func boot(t testing.TB, settings config.Settings, logs io.Writer) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	app, err := New(ctx, settings, logs)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	if client, ok := app.stores.redis.(*redis.Client); ok {
		client.Options().ReadTimeout, client.Options().WriteTimeout = slowGate, slowGate
	}
	ran := make(chan error, 1)
	go func() { ran <- app.Run(ctx) }()
	s := &server{t: t, app: app, url: "http://" + app.listener.Addr().String()}
	s.http = s.newHTTP("")
	s.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ran:
			if err = errors.Join(err, app.Close()); err != nil {
				t.Errorf("the app did not stop in order: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the app did not stop within ten seconds")
		}
		s.http.CloseIdleConnections()
	})
	t.Cleanup(s.stop)
	return s
}

// in is the same server for a subtest, which then fails by itself.
func (s *server) in(t testing.TB) *server {
	other := *s
	other.t = t
	return &other
}

// onMariaDB is a change of the settings: a new database on the shared MariaDB, and a Redis of the test's own.
func onMariaDB(t testing.TB, redis *kit.RedisServer) func(*config.Settings) {
	database := kit.SharedMariaDB(t).NewDatabase(t)
	return func(s *config.Settings) { s.Database, s.Redis = database, redis.URL() }
}

// newHTTP makes a client that follows no redirect and, unless address is empty, connects from there. What it says and
// hears is held to openapi.yaml.
func (s *server) newHTTP(address string) *http.Client {
	dialer := &net.Dialer{Timeout: patience}
	if address != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	}
	return &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     inspect(s.t, s.url, &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256}),
	}
}

// newStreamHTTP makes a client for streams: without a time limit, and with a connection each.
func (s *server) newStreamHTTP() *http.Client {
	return &http.Client{Transport: inspect(s.t, s.url, &http.Transport{})}
}

// eventually asks until ok says yes, or fails the test.
func (s *server) eventually(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			s.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// client asks a server in somebody's name.
type client struct {
	*server
	user, token string
	from        *http.Client
	header      http.Header // of every request
}

// anyone asks without a token.
func (s *server) anyone() *client { return &client{server: s, from: s.http, header: http.Header{}} }

// buyer is a buyer of this id, with a token as any issuer may sign it.
func (s *server) buyer(name string) *client { return s.as(name, model.RoleBuyer) }

// operator is the operator.
func (s *server) operator() *client { return s.as(service.OperatorName, model.RoleOperator) }

func (s *server) as(user string, role model.Role) *client {
	s.t.Helper()
	token, _, err := auth.NewTokens([]byte(testSecret), time.Now).Sign(model.Identity{UserID: user, Role: role}, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.anyone()
	c.user, c.token = user, token
	return c
}

// in is the same client for a subtest.
func (c *client) in(t testing.TB) *client {
	other := *c
	other.server = c.server.in(t)
	return &other
}

// at is the same client, connecting from another address of the loopback network.
func (c *client) at(address string) *client {
	other := *c
	other.from = c.newHTTP(address)
	c.t.Cleanup(other.from.CloseIdleConnections)
	return &other
}

// with is the same client with more headers on every request, given as names and values.
func (c *client) with(headers ...string) *client {
	other := *c
	other.header = c.header.Clone()
	for i := 0; i < len(headers); i += 2 {
		other.header.Set(headers[i], headers[i+1])
	}
	return &other
}

// answer is a response that was read to its end.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// call sends body (nil: none; a string: as it is; else as JSON) to a path of the server, or to a whole URL.
func (c *client) call(method, path string, body any, headers ...string) *answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), method, path, body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// try is call for other goroutines than the test's, and for answers that may not come.
func (c *client) try(ctx context.Context, method, path string, body any, headers ...string) (*answer, error) {
	req, err := c.request(ctx, method, path, body, headers...)
	if err != nil {
		return nil, err
	}
	res, err := c.from.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	a := &answer{t: c.t, what: method + " " + path, status: res.StatusCode, header: res.Header}
	a.body, err = io.ReadAll(res.Body)
	return a, err
}

func (c *client) request(ctx context.Context, method, path string, body any, headers ...string) (*http.Request, error) {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	if strings.HasPrefix(path, "/") {
		path = c.url + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req, nil
}

// want ends the test unless the answer has this status.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d %s, want %d", a.what, a.status, a.body, status)
	}
	return a
}

// read decodes the answer's JSON, in which nothing may stand that into doesn't know.
func (a *answer) read(into any) {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		a.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
}

// object is the answer's JSON as it came, numbers unconverted.
func (a *answer) object() map[string]any {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	var doc map[string]any
	if err := d.Decode(&doc); err != nil {
		a.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
	return doc
}

// problem is a refusal as clients see it.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Field     string `json:"field"` // if it is about one
	RequestID string `json:"request_id"`
}

// refused ends the test unless the answer is a refusal with this status and code.
func (a *answer) refused(status int, code string) problem {
	a.t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Fatalf("%s: %d %s %s, want %d %s", a.what, a.status, a.header.Get("Content-Type"), a.body, status, code)
	}
	var p problem
	a.read(&p)
	if p.Code != code {
		a.t.Fatalf("%s: %d %s, want the code %s", a.what, a.status, a.body, code)
	}
	return p
}

type sale struct {
	ID                 string    `json:"id"`
	Title              string    `json:"title"`
	Description        string    `json:"description"`
	ImageURL           string    `json:"image_url"`
	PriceCents         int64     `json:"price_cents"`
	OriginalPriceCents int64     `json:"original_price_cents"`
	Currency           string    `json:"currency"`
	Quota              int64     `json:"quota"`
	Available          int64     `json:"available"`
	State              string    `json:"state"`
	StartsAt           time.Time `json:"starts_at"`
	EndsAt             time.Time `json:"ends_at"`
	LimitPerUser       int       `json:"limit_per_user"`
	PayTimeoutSeconds  int       `json:"pay_timeout_seconds"`
	ShortURL           string    `json:"short_url"`
}

// operatorSale is a sale as operators see it.
type operatorSale struct {
	sale
	Status string `json:"status"`
	Parts  int    `json:"parts"`
}

type order struct {
	ID          string     `json:"id"`
	SaleID      string     `json:"sale_id"`
	Status      string     `json:"status"`
	Reason      string     `json:"reason"`
	Quantity    int        `json:"quantity"`
	AmountCents int64      `json:"amount_cents"`
	Currency    string     `json:"currency"`
	CreatedAt   *time.Time `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	PaidAt      *time.Time `json:"paid_at"`
	UserID      string     `json:"user_id"` // in the operator's lists
}

type orders struct {
	Orders     []order `json:"orders"`
	NextCursor string  `json:"next_cursor"`
}

type payment struct {
	PaymentID string    `json:"payment_id"`
	PayURL    string    `json:"pay_url"`
	ExpiresAt time.Time `json:"expires_at"`
}

type audit struct {
	Quota     int64            `json:"quota"`
	Available int64            `json:"available"`
	Held      int64            `json:"held"`
	Paid      int64            `json:"paid"`
	Orders    map[string]int64 `json:"orders"`
	Units     map[string]int64 `json:"units"`
	Gate      struct {
		Epoch    int64 `json:"epoch"`
		Left     int64 `json:"left"`
		Inflight int64 `json:"inflight"`
		Stream   int64 `json:"stream"`
	} `json:"gate"`
	Drift int64 `json:"drift"`
	OK    bool  `json:"ok"`
}

// fields are what the operator enters of a sale.
type fields map[string]any

// newSale is a sale that is open now: ten units at 9.90, two for each buyer.
func newSale(changes fields) fields {
	now := time.Now()
	f := fields{
		"title": "Teapot", "price_cents": 990, "original_price_cents": 4990, "currency": "CNY", "quota": 10,
		"starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour), "limit_per_user": 2, "pay_timeout_seconds": 600,
	}
	for name, value := range changes {
		f[name] = value
	}
	return f
}

// createSale makes the sale of newSale with these fields changed.
func (s *server) createSale(changes fields) sale {
	s.t.Helper()
	return s.operator().createSale(changes)
}

func (c *client) createSale(changes fields) sale {
	c.t.Helper()
	var made operatorSale
	c.call("POST", "/api/v1/admin/sales", newSale(changes)).want(http.StatusCreated).read(&made)
	return made.sale
}

// patchSale changes a sale.
func (s *server) patchSale(saleID string, changes fields) sale {
	s.t.Helper()
	var changed operatorSale
	s.operator().call("PATCH", "/api/v1/admin/sales/"+saleID, changes).want(http.StatusOK).read(&changed)
	return changed.sale
}

// setStatus pauses, resumes or closes a sale.
func (s *server) setStatus(saleID, action string) {
	s.t.Helper()
	s.operator().call("POST", "/api/v1/admin/sales/"+saleID+"/"+action, nil).want(http.StatusOK)
}

// sale reads a sale.
func (s *server) sale(saleID string) sale {
	s.t.Helper()
	var found sale
	s.anyone().call("GET", "/api/v1/sales/"+saleID, nil).want(http.StatusOK).read(&found)
	return found
}

// audit asks for a sale's books as they are.
func (s *server) audit(saleID string) audit {
	s.t.Helper()
	var books audit
	s.operator().call("GET", "/api/v1/admin/sales/"+saleID+"/audit", nil).want(http.StatusOK).read(&books)
	return books
}

// balanced waits until nothing is on its way, and gives the books, which must add up.
func (s *server) balanced(saleID string) audit {
	s.t.Helper()
	var books audit
	s.eventually("the books of sale "+saleID+" balance", func() bool {
		books = s.audit(saleID)
		return books.OK && books.Gate.Stream == 0 && books.Gate.Inflight == 0
	})
	return books
}

// sums waits until nothing is on its way, and gives the books, whether or not the gate agrees.
func (s *server) sums(saleID string) audit {
	s.t.Helper()
	var books audit
	s.eventually("the stream of sale "+saleID+" is settled", func() bool {
		books = s.audit(saleID)
		return books.Gate.Stream == 0 && books.Gate.Inflight == 0
	})
	return books
}

// path asks for the path under which the buyer may buy.
func (c *client) path(saleID string) string {
	c.t.Helper()
	var issued struct {
		Path      string    `json:"path"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	c.call("POST", "/api/v1/sales/"+saleID+"/path", nil).want(http.StatusOK).read(&issued)
	return issued.Path
}

// forgedPath is a good path that the server did not issue: what a buyer may have from before.
func (c *client) forgedPath(saleID string) string {
	path, _ := auth.NewPaths([]byte(testSecret), time.Now).Issue(c.user, saleID, time.Hour)
	return path
}

// purchase asks for units, under a path that is good whatever the sale's state. Its answer may be any.
func (c *client) purchase(saleID string, quantity any, headers ...string) *answer {
	c.t.Helper()
	return c.call("POST", "/api/v1/sales/"+saleID+"/"+c.forgedPath(saleID)+"/orders", fields{"quantity": quantity}, headers...)
}

// buy asks for a path and buys under it; the order must be confirmed.
func (c *client) buy(saleID string, quantity int) order {
	c.t.Helper()
	var made order
	c.call("POST", "/api/v1/sales/"+saleID+"/"+c.path(saleID)+"/orders", fields{"quantity": quantity}).want(http.StatusCreated).read(&made)
	return made
}

// order reads one of the client's orders.
func (c *client) order(id string) order {
	c.t.Helper()
	var found order
	c.call("GET", "/api/v1/orders/"+id, nil).want(http.StatusOK).read(&found)
	return found
}

// becomes waits until an order has a status.
func (c *client) becomes(id, status string) order {
	c.t.Helper()
	var found order
	c.eventually("order "+id+" becomes "+status, func() bool {
		found = c.order(id)
		return found.Status == status
	})
	return found
}

// cancel takes an order back.
func (c *client) cancel(id string) {
	c.t.Helper()
	c.call("DELETE", "/api/v1/orders/"+id, nil).want(http.StatusOK)
}

// startPayment opens a payment of an order.
func (c *client) startPayment(id string) payment {
	c.t.Helper()
	var started payment
	c.call("POST", "/api/v1/orders/"+id+"/payments", nil).want(http.StatusCreated).read(&started)
	return started
}

// choose presses a button on a payment's page: pay or decline.
func (c *client) choose(p payment, choice string) *answer {
	c.t.Helper()
	return c.call("POST", p.PayURL, "choice="+choice, "Content-Type", "application/x-www-form-urlencoded").want(http.StatusOK)
}

// pay pays an order on the sandbox provider's page.
func (c *client) pay(id string) {
	c.t.Helper()
	c.choose(c.startPayment(id), "pay")
	if paid := c.order(id); paid.Status != "paid" {
		c.t.Fatalf("order %s is %s after its payment", id, paid.Status)
	}
}

// sign signs a callback's body as the contract says, with the tests' secret.
func sign(timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(timestamp + "." + string(body)))
	return hex.EncodeToString(mac.Sum(nil))
}

// signed is a payment provider whose every request says body.
func (s *server) signed(body any) *client {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	return s.anyone().with("X-Timestamp", now, "X-Signature", sign(now, text))
}

// callback tells the server what a payment provider would.
func (s *server) callback(body any) *answer {
	s.t.Helper()
	return s.signed(body).call("POST", "/api/v1/payments/callback", body)
}

// signJWT makes a token by hand; ttl 0 leaves exp out.
func signJWT(t testing.TB, algorithm, key string, claims fields, ttl time.Duration) string {
	t.Helper()
	all := jwt.MapClaims(maps.Clone(claims))
	if ttl != 0 {
		all["exp"] = time.Now().Add(ttl).Unix()
	}
	var secret any = []byte(key)
	if algorithm == "none" {
		secret = jwt.UnsafeAllowNoneSignatureType
	}
	token, err := jwt.NewWithClaims(jwt.GetSigningMethod(algorithm), all).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// database opens the server's SQLite file beside it.
func (s *server) database() *sql.DB {
	s.t.Helper()
	path, _ := s.app.settings.SQLitePath()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

// exec changes the server's SQLite file behind its back.
func (s *server) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.database().ExecContext(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// overdue lets the time to pay of an order be over, grace and all, and waits until it has expired and its gate knows.
func (c *client) overdue(id string) {
	c.t.Helper()
	c.exec("UPDATE orders SET expires_at_ms = created_at_ms - 100000000 WHERE id = ?", id)
	c.becomes(id, "expired")
	if !c.app.strategy.UsesGate() {
		return
	}
	c.eventually("the gate is told of the expiry", func() bool {
		offer, _, err := c.app.stores.database.Offer(c.t.Context(), model.SaleOf(id))
		if err != nil {
			return false
		}
		states, err := c.app.gate.Peek(c.t.Context(), offer.ID)
		return err == nil && states[0].Version >= offer.Stock.GateVersion
	})
}

// hold keeps the server from writing to its SQLite file until letGo is called; it can still read. What the gate
// admits meanwhile stays queued.
func (s *server) hold() (letGo func()) {
	s.t.Helper()
	conn, err := s.database().Conn(s.t.Context())
	if err == nil {
		_, err = conn.ExecContext(s.t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	letGo = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.WithoutCancel(s.t.Context()), "ROLLBACK")
		if err = errors.Join(err, conn.Close()); err != nil {
			s.t.Errorf("let the database go: %v", err)
		}
	})
	s.t.Cleanup(letGo)
	return letGo
}

// stockEvent is what a sale's stream says.
type stockEvent struct {
	ID        string    `json:"-"` // of the event
	Available int64     `json:"available"`
	Quota     int64     `json:"quota"`
	State     string    `json:"state"`
	Now       time.Time `json:"now"`
}

// stream is a sale's server-sent events as a browser hears them; the channel closes when the stream ends.
type stream struct {
	header http.Header
	events chan stockEvent
}

// events listens to a sale until the test ends.
func (s *server) events(saleID string, headers ...string) *stream {
	s.t.Helper()
	c := s.anyone()
	c.from = s.newStreamHTTP()
	req, err := c.request(s.t.Context(), "GET", "/api/v1/sales/"+saleID+"/events", nil, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := c.from.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("events: %d", res.StatusCode)
	}
	heard := &stream{header: res.Header, events: make(chan stockEvent, 100)}
	go func() {
		defer close(heard.events)
		name, id := "", ""
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if value, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = value
			}
			if value, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = value
			}
			e := stockEvent{ID: id}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && name == "stock" && json.Unmarshal([]byte(data), &e) == nil {
				heard.events <- e
			}
		}
	}()
	return heard
}

// next waits for the stream's next event.
func (s *stream) next(t testing.TB) stockEvent {
	t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			t.Fatal("the stream ended")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event came")
	}
	return stockEvent{}
}

// ended waits for the end of the stream.
func (s *stream) ended(t testing.TB) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-s.events:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the stream did not end")
		}
	}
}
