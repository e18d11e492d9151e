package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// shown is set by `make example`.
var shown = flag.String("example", "", "TestExample prints its steps and has the ports 8090 and 8091; it ends once it has bought, or stays until Ctrl-C: `once or stay`")

const (
	// startTimeout is far above what a process needs to start, or an event to arrive, on a busy machine.
	startTimeout = time.Minute
	// stopTimeout is the time that a process gets to stop before it is killed.
	stopTimeout = 20 * time.Second
	// mostLines is how many lines of a process wait to be read at most. Further lines are dropped, since nobody reads them after
	// the purchase.
	mostLines = 100
)

// The shop and the engine, as two processes on the loopback address: an operator connects them, a customer buys, the order is paid
// in the engine, and the shop lists it as paid. At the end both processes are gone.
func TestExample(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e := &example{password: rand.Text()}
	t.Run("purchase", func(t *testing.T) {
		e.T, e.ctx, e.out, e.logs = t, ctx, t.Output(), t.Output()
		shopAddr, engineAddr := "127.0.0.1:0", "127.0.0.1:0"
		if *shown != "" {
			shopAddr, engineAddr, e.out, e.logs = "127.0.0.1:8090", "127.0.0.1:8091", os.Stdout, os.Stderr
		}
		ended := e.start(shopAddr, engineAddr) //nolint:contextcheck // a program ends by its own stop
		e.purchase()                           //nolint:contextcheck // ask has the context of the test
		e.say("the shop: %s   its orders: %s/orders", e.shop, e.shop)
		e.say("the engine: %s   its console: %s/console, admin, password %s", e.engine, e.engine, e.password)
		if *shown == "stay" {
			e.say("Ctrl-C ends both")
			select {
			case <-ctx.Done():
			case err := <-ended:
				if ctx.Err() == nil { // Ctrl-C reaches the two as well
					t.Error(err)
				}
			}
		}
	})
	for _, address := range []string{e.shop, e.engine} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		noError(t, err)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s still answers", address)
		}
	}
}

// example is the running example.
type example struct {
	*testing.T
	ctx          context.Context // ends with Ctrl-C
	out, logs    io.Writer
	shop, engine string // URLs
	password     string // of the operator
	admin        string // the operator's token
	sale         string
	shopLog      <-chan string
}

func (e *example) say(format string, values ...any) {
	_, _ = fmt.Fprintf(e.out, format+"\n", values...)
}

// start builds both programs, starts them and connects them. ended gets an error when one of them ends by itself.
func (e *example) start(shopAddr, engineAddr string) (ended <-chan error) {
	e.Helper()
	folder, ends := e.TempDir(), make(chan error, 2)
	shop, engine := filepath.Join(folder, "shop"), filepath.Join(folder, "flashsale")
	e.say("building the engine and the shop, which takes some minutes the first time")
	e.build("../..", engine)
	e.build(".", shop)

	// The shop starts first, because the engine asks it for the keys of customers' tokens.
	connection := filepath.Join(folder, "connection.json")
	e.shopLog = e.run(ends, shop, "-addr="+shopAddr, "-connection="+connection)
	e.shop = e.find(e.shopLog, `shop is at (\S+)`)
	e.say("the shop runs")
	e.Setenv("FLASHSALE_ADMIN_PASSWORD", e.password)
	e.engine = e.find(e.run(ends, engine,
		"--http-addr="+engineAddr, "--ops-addr=off", "--database=sqlite:"+filepath.Join(folder, "flashsale.db"), "--demo=false",
		"--issuer=shop="+e.shop, "--client-id=storefront", "--audience=flashsale", "--accounts=closed",
		"--payment=handoff", "--checkout-url="+e.shop+"/checkout", "--webhook-private", "--log-level=warn"), `is at (\S+)`)
	e.say("the engine runs, with the shop as its issuer and its checkout")
	e.connect(connection)
	return ends
}

func (e *example) build(folder, program string) {
	e.Helper()
	cmd := exec.CommandContext(e.ctx, "go", "build", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, e.logs, e.logs
	noError(e.T, cmd.Run())
}

// run starts a program and returns the lines that it prints. The program is stopped at the end of the test, the last one first.
func (e *example) run(ended chan<- error, program string, args ...string) <-chan string {
	e.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(e.ctx))
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = filepath.Dir(program), e.logs, stopTimeout
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := cmd.StdoutPipe()
	noError(e.T, err)
	noError(e.T, cmd.Start())
	lines, done := make(chan string, mostLines), make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			select {
			case lines <- s.Text():
			default:
			}
		}
		_ = cmd.Wait() // ProcessState, below, says the same
		close(lines)
		ended <- fmt.Errorf("%s has ended: %s", filepath.Base(program), cmd.ProcessState)
	}()
	e.Cleanup(func() {
		stop()
		<-done
		if strings.Contains(cmd.ProcessState.String(), "killed") {
			e.Errorf("%s does not stop", filepath.Base(program))
		}
	})
	return lines
}

// find waits for a line that matches a pattern, and returns the pattern's first group. The test fails if no such line comes within
// startTimeout, or the process ends.
func (e *example) find(lines <-chan string, pattern string) string {
	e.Helper()
	form, late := regexp.MustCompile(pattern), time.After(startTimeout)
	for {
		select {
		case line, more := <-lines:
			if found := form.FindStringSubmatch(line); found != nil {
				return found[1]
			}
			if !more {
				e.Fatalf("the process has ended without a line like %q", pattern)
			}
		case <-late:
			e.Fatalf("after %s there is no line like %q", startTimeout, pattern)
		case <-e.ctx.Done():
			e.Fatal(e.ctx.Err())
		}
	}
}

type fields = map[string]any

// api calls the engine and, unless into is nil, decodes the answer into it.
func (e *example) api(method, path, token string, body, into any) {
	e.Helper()
	text, err := json.Marshal(body)
	noError(e.T, err)
	request, err := http.NewRequestWithContext(e.ctx, method, e.engine+"/api/v1"+path, strings.NewReader(string(text)))
	noError(e.T, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Prefer", "wait=10")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	noError(e.T, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	noError(e.T, err)
	if response.StatusCode >= http.StatusBadRequest {
		e.Fatalf("%s %s: the answer is %s: %s", method, path, response.Status, answer)
	}
	if into != nil {
		noError(e.T, json.Unmarshal(answer, into))
	}
}

// connect does what an operator does once: it makes a sale, a key and an endpoint for the shop, and writes the shop's file
// connection.
func (e *example) connect(connection string) {
	e.Helper()
	var in struct{ Token string }
	e.api("POST", "/sessions", "", fields{"name": "admin", "password": e.password}, &in)
	e.admin = in.Token
	now := time.Now().UTC()
	var sale struct{ ID string }
	e.api("POST", "/admin/sales", e.admin, fields{
		"title": "The last hundred teapots", "description": "Two for each buyer, ten minutes to pay.",
		"price_cents": 990, "original_price_cents": 4990, "currency": "CNY", "quota": 100, "limit_per_user": 2, "pay_timeout_seconds": 600,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.AddDate(1, 0, 0).Format(time.RFC3339),
	}, &sale)
	e.sale = sale.ID
	e.say("operator: made the sale %s", sale.ID)
	var key, endpoint struct{ Secret string }
	e.api("POST", "/admin/staff", e.admin, fields{"name": "shop", "kind": "key", "role": "holds"}, &key)
	e.say("operator: made a key with the role holds")
	e.api("POST", "/admin/endpoints", e.admin, fields{"url": e.shop + "/events"}, &endpoint)
	e.say("operator: made an endpoint, %s/events", e.shop)
	text, err := json.Marshal(Connection{Engine: e.engine, Key: key.Secret, WebhookSecret: endpoint.Secret})
	noError(e.T, err)
	noError(e.T, os.WriteFile(connection, text, 0o600))
}

// logIn logs the customer ann in at the shop as the engine's pages do, by an authorization code with PKCE, and returns a token
// of the engine.
func (e *example) logIn() (token string) {
	e.Helper()
	var login struct {
		Issuer struct {
			AuthorizationURL string `json:"authorization_url"`
			ClientID         string `json:"client_id"`
			RedirectURL      string `json:"redirect_url"`
			Scope            string
		}
	}
	e.api("GET", "/login", "", nil, &login)
	verifier, state, nonce := oauth2.GenerateVerifier(), rand.Text(), rand.Text()
	shop := oauth2.Config{
		ClientID: login.Issuer.ClientID, RedirectURL: login.Issuer.RedirectURL, Scopes: strings.Fields(login.Issuer.Scope),
		Endpoint: oauth2.Endpoint{AuthURL: login.Issuer.AuthorizationURL},
	}
	address := shop.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier), oidc.Nonce(nonce))
	status, _, _ := ask(e.T, address, nil)
	same(e.T, "status of the log-in page", status, http.StatusOK)
	_, _, location := ask(e.T, address, url.Values{"name": {"ann"}, "password": {"tea for two"}})
	back, err := url.Parse(location)
	if err != nil || !strings.HasPrefix(location, login.Issuer.RedirectURL+"?") || back.Query().Get("state") != state {
		e.Fatalf("the shop leads to %q after the log-in", location)
	}
	var session struct {
		Token string
		User  struct{ ID, Name string }
	}
	e.api("POST", "/sessions/code", "", fields{"code": back.Query().Get("code"), "verifier": verifier, "nonce": nonce}, &session)
	e.say("customer: logged in at the shop as %s, who is %s in the engine", session.User.Name, session.User.ID)
	return session.Token
}

// purchase buys one unit as a customer and pays for it at the shop's checkout.
func (e *example) purchase() {
	e.Helper()
	_, front, _ := ask(e.T, e.shop+"/", nil)
	contains(e.T, front, e.engine+"/sales/"+e.sale)
	token := e.logIn()
	var path struct{ Path string }
	e.api("POST", "/sales/"+e.sale+"/path", token, nil, &path)
	var order struct{ ID, Status string }
	e.api("POST", "/sales/"+e.sale+"/"+path.Path+"/orders", token, fields{"quantity": 1}, &order)
	e.say("customer: ordered one, order %s is %s", order.ID, order.Status)
	var payment struct {
		PayURL string `json:"pay_url"`
	}
	e.api("POST", "/orders/"+order.ID+"/payments", token, nil, &payment)
	checkout, err := url.Parse(payment.PayURL)
	if err != nil || !strings.HasPrefix(payment.PayURL, e.shop+"/checkout?") {
		e.Fatalf("the engine leads to %q for the payment", payment.PayURL)
	}
	_, shows, _ := ask(e.T, payment.PayURL, nil)
	contains(e.T, shows, "CNY 9.90")
	e.say("customer: at the shop's checkout, which shows CNY 9.90")
	_, shows, _ = ask(e.T, e.shop+"/checkout", url.Values{"hold": {checkout.Query().Get("hold")}})
	contains(e.T, shows, "Paid. Thank you!")
	e.api("GET", "/orders/"+order.ID, token, nil, &order)
	same(e.T, "status in the engine after the payment", order.Status, "paid")
	e.say("customer: paid; the shop has settled the order, and in the engine it is %s", order.Status)

	e.find(e.shopLog, `event \d+: (order\.paid), order `+order.ID)
	_, page, _ := ask(e.T, e.shop+"/orders", nil)
	row := regexp.MustCompile(`(?s)<td[^>]*>` + order.ID + `</td>.*?</tr>`).FindString(page)
	contains(e.T, row, ">shop:ann<", ">CNY 9.90<", ">paid<")
	e.say("shop: heard of the order by a webhook, and lists it")
	var list struct {
		Orders []struct{ ID, Status string }
	}
	e.api("GET", "/admin/sales/"+e.sale+"/orders", e.admin, nil, &list)
	if len(list.Orders) != 1 || list.Orders[0] != order {
		e.Errorf("the engine has the orders %+v, want %s, paid", list.Orders, order.ID)
	}
	_, front, _ = ask(e.T, e.shop+"/", nil)
	contains(e.T, front, "99 left")
}
