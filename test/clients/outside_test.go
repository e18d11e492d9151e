//go:build bench

package clients

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// node returns a command that runs a script beside the libraries that `make clients` has installed.
func node(ctx context.Context, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	cmd.Dir = filepath.Join(shop.Root(), "build", "clients", "typescript")
	return cmd
}

// printed returns what a script prints for an input.
func printed(t *testing.T, input []byte, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := node(ctx, script, args...)
	cmd.Stdin = strings.NewReader(string(input))
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, output)
	}
	return string(output)
}

// Customers and operators log in at an issuer that is an OpenID Certified server.
func TestOIDCProvider(t *testing.T) {
	ports := []int{check.Must(kit.FreePort()), check.Must(kit.FreePort())}
	engine, issuer := fmt.Sprint("http://127.0.0.1:", ports[0]), fmt.Sprint("http://127.0.0.1:", ports[1])
	cmd := node(t.Context(), "issuer.mjs", fmt.Sprint(ports[1]), engine+"/login")
	log := check.Must(cmd.StdoutPipe())
	check.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	for lines := bufio.NewScanner(log); lines.Scan() && lines.Text() != "ready"; {
	}
	for by, users := range map[string]map[string]string{
		"sub":   {"olga": "shop:olga olga of the shop operator", "ann": "shop:ann ann of the shop buyer"},
		"email": {"olga": "shop::", "ann": "shop::"}, // an address is no id, so its hash is
	} {
		s := shop.Embedded(t)
		instance := s.Start("--http-addr", strings.TrimPrefix(engine, "http://"), "--public-url", engine, "--issuer", "shop="+issuer, "--audience", "api",
			"--client-id", "flashsale", "--client-secret", "a secret: with/odd+characters %", "--scopes", "openid profile email groups",
			"--operator-claim", "groups=bosses", "--user-claim", by)
		for name, want := range users {
			code := authorized(t, s, engine, issuer, name)
			doc := s.Must(http.StatusOK, "POST", engine+"/api/v1/sessions/code", "", shop.Document{"code": code, "verifier": verifier, "nonce": "n"})
			user, _ := doc["user"].(shop.Document)
			if got := fmt.Sprint(user["id"], " ", user["name"], " ", user["role"]); !strings.HasPrefix(got, want) {
				t.Errorf("%s by %s is %s, want %s", name, by, got, want)
			}
		}
		instance.Stop()
	}
}

var verifier = strings.Repeat("v", 43)

// authorized logs a user in as a browser does, through the forms of the issuer, and returns the code that it leads back with.
func authorized(t *testing.T, s *shop.Shop, engine, issuer, user string) (code string) {
	t.Helper()
	login, _ := s.Must(http.StatusOK, "GET", engine+"/api/v1/login", "", nil)["issuer"].(shop.Document)
	sum := sha256.Sum256([]byte(verifier))
	query := url.Values{
		"response_type": {"code"}, "client_id": {login["client_id"].(string)}, "redirect_uri": {login["redirect_url"].(string)}, "scope": {login["scope"].(string)},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}, "state": {"s"}, "nonce": {"n"},
	}
	browser := &http.Client{Jar: check.Must(cookiejar.New(nil)), Timeout: timeout, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), engine) {
			code = r.URL.Query().Get("code")
			return http.ErrUseLastResponse
		}
		return nil
	}}
	res := check.Must(browser.Get(login["authorization_url"].(string) + "?" + query.Encode())) //nolint:noctx // the client has a timeout
	for _, form := range []url.Values{{"prompt": {"login"}, "login": {user}, "password": {"any"}}, {"prompt": {"consent"}}} {
		_, _ = io.Copy(io.Discard, res.Body)
		check.NoError(t, res.Body.Close())
		res = check.Must(browser.PostForm(res.Request.URL.String(), form)) //nolint:noctx // the client has a timeout
	}
	page := check.Must(io.ReadAll(res.Body))
	check.NoError(t, res.Body.Close())
	if code == "" {
		t.Fatalf("the issuer has no code for %s: %s %.500s", user, res.Status, page)
	}
	return code
}

// Notices that Stripe's own library signs are read, and messages to endpoints pass the library of Standard Webhooks.
func TestSignatures(t *testing.T) {
	s := shop.Embedded(t)
	const secret = "whsec_of_the_clients"
	url := s.Start("--payment", "stripe", "--stripe-key", "sk_test_1", "--stripe-webhook-secret", secret, "--webhook-private").URL
	notice := []byte(`{"id":"evt_1","object":"event","type":"customer.created","data":{"object":{"id":"cus_1"}}}`)
	signed := printed(t, notice, "sign.mjs", secret)
	for body, status := range map[string]int{string(notice): http.StatusOK, strings.Replace(string(notice), "cus_1", "cus_2", 1): http.StatusUnauthorized} {
		s.Must(status, "POST", url+"/api/v1/payments/notices", "", json.RawMessage(body), "Stripe-Signature", signed)
	}

	type message struct {
		headers map[string]string
		body    []byte
	}
	came := make(chan message, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := message{map[string]string{}, body}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			m.headers[name] = r.Header.Get(name)
		}
		came <- m
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	made := s.Must(http.StatusCreated, "POST", url+"/api/v1/admin/endpoints", s.Operator(url), shop.Document{"url": receiver.URL})
	s.Sale(url, 1)
	select {
	case m := <-came:
		types := printed(t, m.body, "verify.mjs", made["secret"].(string), string(check.Must(json.Marshal(m.headers))))
		check.Same(t, "events", strings.Contains(types, "sale."), true)
	case <-time.After(timeout):
		t.Error("no message came")
	}
}
