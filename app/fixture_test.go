package app_test

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
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/app"
	"flashsale/app/command"
	"flashsale/app/trial"
	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
	"flashsale/strategy"
	"flashsale/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m, endShared) }

const (
	testSecret    = "a secret of the tests, long enough to sign"
	adminPassword = "correct horse battery"
	// patience bounds every wait of a test: far above what a slow machine needs.
	patience = time.Minute
	// slowGate replaces the gate's own time limit for Redis, so that a busy machine does not change answers.
	slowGate = 10 * time.Second
	// pollEvery is the pause between two looks at a state that only HTTP shows.
	pollEvery = 25 * time.Millisecond
	// absentSale is the id of no sale.
	absentSale = "AAAAAAAAAAAAAAAA"
)

// noError ends the test if there is an error.
func noError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// server is a running app.
type server struct {
	t    testing.TB
	app  *app.App
	url  string
	http *http.Client
	stop func() // stops the app before the end of the test; nil if other tests use the server too
}

// parsed reads arguments as the command line does.
func parsed(t testing.TB, args ...string) config.Command {
	t.Helper()
	cmd, err := config.Parse(args, func(string) string { return "" }, io.Discard, io.Discard)
	noError(t, err)
	noError(t, command.Validate(&cmd))
	return cmd
}

// settingsOf returns the settings of a server under test: a free port, an empty SQLite file, Redis in the process, no
// request limits, a wait for orders that is long enough on a busy machine, no demo sale, no ops address. The changes are
// made to these settings.
func settingsOf(t testing.TB, changes ...func(*config.Settings)) config.Settings {
	t.Helper()
	s := parsed(t,
		"--http-addr=127.0.0.1:0", "--ops-addr=off", "--demo=false", "--database="+kit.SQLite(t),
		"--secret="+testSecret, "--admin-password="+adminPassword,
		"--limit-rate=1e6", "--limit-burst=1000000", "--ip-rate=0", "--user-requests=0", "--ack-wait=10s",
		"--log-format=text", "--log-level=error").Settings
	for _, change := range changes {
		change(&s)
	}
	noError(t, s.Validate())
	return s
}

// asTheyAre, withFigures and withStores are changes of the settings.
func asTheyAre(*config.Settings)     {}
func withFigures(s *config.Settings) { s.OpsAddr = "127.0.0.1:0" }

func withStores(stores kit.Stores) func(*config.Settings) {
	return func(s *config.Settings) { s.Database, s.Redis = stores.Database, stores.Redis }
}

// start boots an app of the test's own. See settingsOf for its settings.
func start(t testing.TB, changes ...func(*config.Settings)) *server {
	t.Helper()
	return boot(t, settingsOf(t, changes...), t.Output())
}

// boot runs an app with exactly these settings until the test ends.
func boot(t testing.TB, settings config.Settings, logs io.Writer) *server {
	t.Helper()
	s, end, err := run(settings, logs)
	noError(t, err)
	s.t, s.http = t, s.in(t).newHTTP()
	s.stop = sync.OnceFunc(func() {
		if err := end(); err != nil {
			t.Errorf("the app did not stop in order: %v", err)
		}
		s.http.CloseIdleConnections()
	})
	t.Cleanup(s.stop)
	return s
}

// run runs an app. A Redis that a busy machine slows down still counts as reachable. end stops the app; it returns an
// error if the app fails, or still runs after the promised ten seconds.
func run(settings config.Settings, logs io.Writer) (s *server, end func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, settings, app.Options{Logs: logs, Compare: trial.Compare})
	if err == nil {
		err = a.Furnish(ctx)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if client, ok := a.Stores.Redis.(*redis.Client); ok {
		client.Options().ReadTimeout, client.Options().WriteTimeout = slowGate, slowGate
	}
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	end = func() error {
		cancel()
		select {
		case err := <-ran:
			return errors.Join(err, a.Close())
		case <-time.After(10 * time.Second):
			return errors.New("the app still runs after ten seconds")
		}
	}
	return &server{app: a, url: "http://" + a.Address()}, end, nil
}

// shared holds the servers that many tests use.
var shared = struct {
	sync.Mutex
	byStrategy map[string]*server
	ends       []func() error
}{byStrategy: map[string]*server{}}

// usual returns a server of the default strategy that other tests use at the same time. A test may use it that makes its
// own sales, and neither stops the server, nor holds its database, nor counts what others do as well.
func usual(t testing.TB) *server {
	t.Helper()
	return usualOf(t, "hybrid")
}

// usualOf is usual for another strategy.
func usualOf(t testing.TB, strategyName string) *server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.byStrategy[strategyName] == nil {
		folder, err := os.MkdirTemp("", "flashsale-app-") //nolint:usetesting // the folder outlives the test
		noError(t, err)
		s, end, err := run(settingsOf(t, func(c *config.Settings) {
			c.Strategy, c.AllowOversell, c.Database = strategyName, true, "sqlite:"+filepath.Join(folder, "shared.db")
		}), os.Stderr)
		noError(t, err)
		shared.byStrategy[strategyName] = s
		shared.ends = append(shared.ends, func() error { return errors.Join(end(), os.RemoveAll(folder)) })
	}
	s := shared.byStrategy[strategyName].in(t)
	s.http = s.newHTTP()
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

func endShared() {
	for _, end := range shared.ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "a shared server did not stop in order:", err)
		}
	}
}

// eachStrategy runs a test on a shared server of each strategy but those left out.
func eachStrategy(t *testing.T, test func(t *testing.T, s *server), leftOut ...string) {
	t.Helper()
	for _, name := range strategy.Names() {
		if slices.Contains(leftOut, name) {
			continue
		}
		t.Run(name, func(t *testing.T) { test(t, usualOf(t, name)) })
	}
}

// in is the same server for a subtest, which then fails by itself.
func (s *server) in(t testing.TB) *server {
	other := *s
	other.t = t
	return &other
}

// newHTTP makes a client that follows no redirect. Its requests and answers must agree with openapi.yaml.
func (s *server) newHTTP() *http.Client {
	return &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     inspect(s.t, s.url, &http.Transport{MaxIdleConnsPerHost: 256}),
	}
}

// eventually repeats a question until the answer is yes, or fails the test.
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

// client sends requests in the name of one user.
type client struct {
	*server
	user, token string
	from        *http.Client
	header      http.Header // of every request
}

// anyone sends no token.
func (s *server) anyone() *client { return &client{server: s, from: s.http, header: http.Header{}} }

// buyer is the buyer with this id. Its token is signed as another issuer would sign it.
func (s *server) buyer(name string) *client { return s.as(name, model.RoleBuyer) }

// operator is the operator.
func (s *server) operator() *client { return s.as(service.OperatorName, model.RoleOperator) }

func (s *server) as(user string, role model.Role) *client {
	s.t.Helper()
	token, _, err := auth.NewTokens([]byte(testSecret), time.Now).Sign(model.Identity{UserID: user, Role: role}, time.Hour)
	noError(s.t, err)
	c := s.anyone()
	c.user, c.token = user, token
	return c
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

// call sends body (nil: no body; a string: as it is; else as JSON) to a path of the server, or to a whole URL.
func (c *client) call(method, path string, body any, headers ...string) *answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), method, path, body, headers...)
	noError(c.t, err)
	return a
}

// get is a call for a path that must succeed. post is the same with POST.
func (c *client) get(path string) *answer {
	c.t.Helper()
	return c.call("GET", path, nil).want(http.StatusOK)
}

func (c *client) post(path string, body any) *answer {
	c.t.Helper()
	return c.call("POST", path, body).want(http.StatusOK)
}

// try is call for goroutines that are not the test's, and for answers that may not come.
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
	maps.Copy(req.Header, c.header)
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

// read decodes the answer's JSON, which must not have a member that into does not have.
func (a *answer) read(into any) {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		a.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
}

// object returns the answer's JSON object.
func (a *answer) object() map[string]any {
	a.t.Helper()
	var doc map[string]any
	a.read(&doc)
	return doc
}

// text returns a member of the answer's JSON object, which must be a string.
func (a *answer) text(member string) string {
	a.t.Helper()
	text, ok := a.object()[member].(string)
	if !ok {
		a.t.Fatalf("%s: no text %q in %s", a.what, member, a.body)
	}
	return text
}

// contains checks that the answer's body has these parts.
func (a *answer) contains(parts ...string) *answer {
	a.t.Helper()
	for _, part := range parts {
		if !bytes.Contains(a.body, []byte(part)) {
			a.t.Errorf("%s: no %q in %s", a.what, part, a.body)
		}
	}
	return a
}

// replayed reports whether the answer says that it repeats an earlier one.
func (a *answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// problem is a refusal as clients see it.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Field     string `json:"field"` // if the refusal is about one
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
	Shards int    `json:"parts"`
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

// fields are the members of a request's body.
type fields map[string]any

// changed returns the fields with changes.
func (f fields) changed(changes fields) fields {
	all := maps.Clone(f)
	maps.Copy(all, changes)
	return all
}

// newSale is a sale that is open now: ten units at 9.90, two for each buyer.
func newSale(changes fields) fields {
	now := time.Now()
	return fields{
		"title": "Teapot", "price_cents": 990, "original_price_cents": 4990, "currency": "CNY", "quota": 10,
		"starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour), "limit_per_user": 2, "pay_timeout_seconds": 600,
	}.changed(changes)
}

const adminSales = "/api/v1/admin/sales"

// createSale makes the sale of newSale with these fields changed.
func (s *server) createSale(changes fields) sale {
	s.t.Helper()
	return s.operator().createSale(changes)
}

func (c *client) createSale(changes fields) sale {
	c.t.Helper()
	var made operatorSale
	c.call("POST", adminSales, newSale(changes)).want(http.StatusCreated).read(&made)
	return made.sale
}

// patchSale changes a sale.
func (s *server) patchSale(saleID string, changes fields) sale {
	s.t.Helper()
	var changed operatorSale
	s.operator().call("PATCH", adminSales+"/"+saleID, changes).want(http.StatusOK).read(&changed)
	return changed.sale
}

// setStatus pauses, resumes or closes a sale.
func (s *server) setStatus(saleID, action string) {
	s.t.Helper()
	s.operator().post(adminSales+"/"+saleID+"/"+action, nil)
}

// refund refunds an order.
func (s *server) refund(orderID string) *answer {
	s.t.Helper()
	return s.operator().call("POST", "/api/v1/admin/orders/"+orderID+"/refund", nil)
}

// sale reads a sale.
func (s *server) sale(saleID string) sale {
	s.t.Helper()
	var found sale
	s.anyone().get("/api/v1/sales/" + saleID).read(&found)
	return found
}

// knows waits until an instance shows a sale that another one has made.
func (s *server) knows(saleID string) {
	s.t.Helper()
	s.eventually("the instance knows the sale", func() bool { return s.sale(saleID).State == "open" })
}

// audit reads a sale's books as they are.
func (s *server) audit(saleID string) audit {
	s.t.Helper()
	var books audit
	s.operator().get(adminSales + "/" + saleID + "/audit").read(&books)
	return books
}

// balanced waits until nothing of a sale is on its way and the books are right, and returns the books.
func (s *server) balanced(saleID string) audit {
	s.t.Helper()
	var books audit
	s.eventually("the books of sale "+saleID+" balance", func() bool {
		books = s.audit(saleID)
		return books.OK && books.Gate.Stream == 0 && books.Gate.Inflight == 0
	})
	return books
}

// stock is the part of the books that most tests compare.
type stock struct{ available, held, paid int64 }

// wantStock waits for balanced books, checks the stock, and returns the books.
func (s *server) wantStock(saleID string, want stock) audit {
	s.t.Helper()
	books := s.balanced(saleID)
	if got := (stock{books.Available, books.Held, books.Paid}); got != want {
		s.t.Errorf("the stock is %+v, want %+v", got, want)
	}
	return books
}

// wantBooks waits for balanced books and checks that they are the same as before.
func (s *server) wantBooks(saleID string, before audit) {
	s.t.Helper()
	if now := s.balanced(saleID); !reflect.DeepEqual(now, before) {
		s.t.Errorf("books %+v became %+v", before, now)
	}
}

// path asks for the path under which the buyer may buy.
func (c *client) path(saleID string) string {
	c.t.Helper()
	return c.post("/api/v1/sales/"+saleID+"/path", nil).text("path")
}

// orderURL returns the URL of a purchase under a good path that the server did not issue: one that a buyer may have from
// before, whatever the sale's state is now.
func (c *client) orderURL(saleID string) string {
	path, _ := auth.NewPaths([]byte(testSecret), time.Now).Issue(c.user, saleID, time.Hour)
	return "/api/v1/sales/" + saleID + "/" + path + "/orders"
}

// purchase buys units under the path of orderURL. The answer may be a refusal.
func (c *client) purchase(saleID string, quantity any, headers ...string) *answer {
	c.t.Helper()
	return c.call("POST", c.orderURL(saleID), fields{"quantity": quantity}, headers...)
}

// purchased is purchase for an answer with this status and an order.
func (c *client) purchased(status int, saleID string, quantity any, headers ...string) (made order) {
	c.t.Helper()
	c.purchase(saleID, quantity, headers...).want(status).read(&made)
	return made
}

// tryPurchase is the purchase of one unit for goroutines that are not the test's.
func (c *client) tryPurchase(saleID string, headers ...string) (*answer, error) {
	ctx := context.WithoutCancel(c.t.Context())
	return c.try(ctx, "POST", c.orderURL(saleID), fields{"quantity": 1}, headers...)
}

// buy asks for a path and buys under that path; the order must be confirmed.
func (c *client) buy(saleID string, quantity int) (made order) {
	c.t.Helper()
	url := "/api/v1/sales/" + saleID + "/" + c.path(saleID) + "/orders"
	c.call("POST", url, fields{"quantity": quantity}).want(http.StatusCreated).read(&made)
	return made
}

// order reads one of the client's orders.
func (c *client) order(id string) (found order) {
	c.t.Helper()
	c.get("/api/v1/orders/" + id).read(&found)
	return found
}

// wantStatus checks the status of one of the client's orders.
func (c *client) wantStatus(id, status string) {
	c.t.Helper()
	if found := c.order(id); found.Status != status {
		c.t.Errorf("order %s is %s, want %s", id, found.Status, status)
	}
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

// cancel cancels an order.
func (c *client) cancel(id string) {
	c.t.Helper()
	c.call("DELETE", "/api/v1/orders/"+id, nil).want(http.StatusOK)
}

// startPayment opens a payment of an order.
func (c *client) startPayment(id string) (started payment) {
	c.t.Helper()
	c.call("POST", "/api/v1/orders/"+id+"/payments", nil).want(http.StatusCreated).read(&started)
	return started
}

const formType = "application/x-www-form-urlencoded"

// choose presses a button on a payment's page: pay or decline.
func (c *client) choose(p payment, choice string) *answer {
	c.t.Helper()
	return c.call("POST", p.PayURL, "choice="+choice, "Content-Type", formType).want(http.StatusOK)
}

// pay pays an order on the sandbox provider's page.
func (c *client) pay(id string) {
	c.t.Helper()
	c.choose(c.startPayment(id), "pay")
	if paid := c.order(id); paid.Status != "paid" {
		c.t.Fatalf("order %s is %s after its payment", id, paid.Status)
	}
}

const callbackURL = "/api/v1/payments/callback"

// paid is a callback's body for a payment of 9.90 that succeeded, with these members changed.
func paid(paymentID string, changes fields) fields {
	return fields{
		"payment_id": paymentID, "provider_txn_id": "txn-" + paymentID, "status": "succeeded", "amount_cents": 990,
	}.changed(changes)
}

// sign signs a callback's body as the contract says, with the tests' secret.
func sign(timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(timestamp + "." + body))
	return hex.EncodeToString(mac.Sum(nil))
}

// signed is a payment provider whose every request has this body.
func (s *server) signed(body any) *client {
	s.t.Helper()
	text, err := json.Marshal(body)
	noError(s.t, err)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	return s.anyone().with("X-Timestamp", now, "X-Signature", sign(now, string(text)))
}

// callback sends a payment provider's signed callback.
func (s *server) callback(body any) *answer {
	s.t.Helper()
	return s.signed(body).call("POST", callbackURL, body)
}

// database opens the server's database beside the server.
func (s *server) database() *sql.DB {
	s.t.Helper()
	return kit.OpenSQL(s.t, s.app.Settings().Database)
}

// exec changes the server's database without the server's knowledge.
func (s *server) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.database().ExecContext(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// refunded waits until the sandbox provider has refunded its transaction of a payment.
func (s *server) refunded(paymentID string) {
	s.t.Helper()
	db := s.database()
	s.eventually("the provider has sent the money back", func() bool {
		var n int
		row := db.QueryRowContext(s.t.Context(),
			"SELECT COUNT(*) FROM sandbox_transactions WHERE payment_id = ? AND status = 'refunded'", paymentID)
		noError(s.t, row.Scan(&n))
		return n == 1
	})
}

// overdue ends an order's time to pay, including the grace, and waits until the order has expired and its gate knows.
func (c *client) overdue(id string) {
	c.t.Helper()
	c.exec("UPDATE orders SET expires_at_ms = created_at_ms - 100000000 WHERE id = ?", id)
	c.becomes(id, "expired")
	if !c.app.Strategy.UsesGate() {
		return
	}
	c.eventually("the gate is told of the expiry", func() bool {
		offer, _, err := c.app.Stores.Database.Offer(c.t.Context(), model.SaleOf(id))
		if err != nil {
			return false
		}
		states, err := c.app.Gate().Peek(c.t.Context(), offer.GateRef())
		return err == nil && states[0].Version >= offer.Stock.GateVersion
	})
}

// hold keeps the server from writing to its SQLite file until letGo is called; the server can still read. Attempts that
// the gate admits meanwhile stay queued.
func (s *server) hold() (letGo func()) {
	s.t.Helper()
	conn, err := s.database().Conn(s.t.Context())
	noError(s.t, err)
	_, err = conn.ExecContext(s.t.Context(), "BEGIN IMMEDIATE")
	noError(s.t, err)
	letGo = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.WithoutCancel(s.t.Context()), "ROLLBACK")
		if err = errors.Join(err, conn.Close()); err != nil {
			s.t.Errorf("let the database go: %v", err)
		}
	})
	s.t.Cleanup(letGo)
	return letGo
}

// event is one server-sent event.
type event struct{ id, name, data string }

// stream is a stream of server-sent events.
type stream struct {
	t      testing.TB
	header http.Header
	events chan event // closed when the stream ends
}

// listen follows a stream of events until the test ends.
func (c *client) listen(path string, headers ...string) *stream {
	c.t.Helper()
	req, err := c.request(c.t.Context(), "GET", path, nil, headers...)
	noError(c.t, err)
	// Streams have a client of their own, since they have no time limit.
	connection := &http.Transport{}
	c.t.Cleanup(connection.CloseIdleConnections)
	res, err := inspect(c.t, c.url, connection).RoundTrip(req)
	noError(c.t, err)
	c.t.Cleanup(func() { _ = res.Body.Close() })
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" {
		c.t.Fatalf("%s: %d %s", path, res.StatusCode, got)
	}
	s := &stream{t: c.t, header: res.Header, events: make(chan event, 1000)}
	go func() {
		defer close(s.events)
		e, lines := event{}, bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
				s.events <- e
			}
		}
	}()
	return s
}

// next waits for the stream's next event.
func (s *stream) next() event {
	s.t.Helper()
	select {
	case e, open := <-s.events:
		if !open {
			s.t.Fatal("the stream ended")
		}
		return e
	case <-time.After(patience):
		s.t.Fatal("no event came")
	}
	return event{}
}

// hear waits for the next event and decodes its data.
func hear[T any](s *stream) (data T) {
	s.t.Helper()
	e := s.next()
	if err := json.Unmarshal([]byte(e.data), &data); err != nil {
		s.t.Fatalf("%v in the event %+v", err, e)
	}
	return data
}

// hearUntil waits for an event whose data is accepted.
func hearUntil[T any](s *stream, what string, ok func(T) bool) T {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		data := hear[T](s)
		if ok(data) {
			return data
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s; the last event: %+v", patience, what, data)
		}
	}
}

// ended waits for the end of the stream.
func (s *stream) ended() {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, open := <-s.events:
			if !open {
				return
			}
		case <-deadline:
			s.t.Fatal("the stream did not end")
		}
	}
}

// stockEvent is an event of a sale's stream.
type stockEvent struct {
	Available int64     `json:"available"`
	Quota     int64     `json:"quota"`
	State     string    `json:"state"`
	Now       time.Time `json:"now"`
}

// events follows a sale's stream.
func (s *server) events(saleID string, headers ...string) *stream {
	s.t.Helper()
	return s.anyone().listen("/api/v1/sales/"+saleID+"/events", headers...)
}

// pages reads a list that comes in pages of at most limit entries. list names the member with the entries.
func pages[T any](c *client, path, list string, limit int) (all []T) {
	c.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	for cursor, turned := "", 0; ; turned++ {
		var page map[string]json.RawMessage
		c.get(fmt.Sprintf("%s%slimit=%d&cursor=%s", path, separator, limit, cursor)).read(&page)
		var entries []T
		noError(c.t, json.Unmarshal(page[list], &entries), json.Unmarshal(page["next_cursor"], &cursor))
		if len(entries) > limit || turned > 100 {
			c.t.Fatalf("page %d of %s has %d entries", turned, path, len(entries))
		}
		if all = append(all, entries...); cursor == "" {
			return all
		}
	}
}

// together runs n goroutines that begin at the same instant, and waits for them.
func together(n int, do func(i int)) {
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-begin
			do(i)
		})
	}
	close(begin)
	all.Wait()
}

// tally counts answers by status and code.
type tally struct {
	sync.Mutex
	counts map[string]int
}

func (c *tally) add(a *answer, err error) {
	what := "error"
	if err == nil {
		var p struct{ Code string }
		_ = json.Unmarshal(a.body, &p) // an answer without JSON has no code
		what = strings.TrimSpace(fmt.Sprint(a.status, " ", p.Code))
	}
	c.Lock()
	defer c.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

func (c *tally) want(t testing.TB, want map[string]int) {
	t.Helper()
	if !maps.Equal(c.counts, want) {
		t.Errorf("answers %v, want %v", c.counts, want)
	}
}

// buyTogether has n buyers buy one unit each at the same instant.
func buyTogether(saleID string, n int, buyer func(i int) *client, headers ...string) *tally {
	buyers := make([]*client, n)
	for i := range buyers {
		buyers[i] = buyer(i)
	}
	var got tally
	together(n, func(i int) { got.add(buyers[i].tryPurchase(saleID, headers...)) })
	return &got
}
