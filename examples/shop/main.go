// Command shop is a small shop that sells through the engine, to show how a real shop is connected. It imports no package of
// the engine. accounts.go has the customers, catalogue.go the front page, checkout.go takes the money of flash sales, and
// orders.go receives the events of their orders. Payments and orders are in memory; a real shop keeps them in its database.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	engineTimeout = 5 * time.Second // of a call to the engine
	repeatEvery   = 2 * time.Second // the pause before calls that failed are repeated
)

//go:embed pages
var files embed.FS

// Connection is what the shop has to know of the engine. An operator of the engine makes the key and the endpoint.
type Connection struct {
	Engine        string `json:"engine"`         // the engine's public URL
	Key           string `json:"key"`            // with the role holds
	WebhookSecret string `json:"webhook_secret"` // of the endpoint that sends to /events
}

type Shop struct {
	url        string // the URL under which browsers and the engine reach the shop
	connection func() (Connection, error)
	pages      *template.Template
	client     *http.Client
	log        io.Writer

	key *rsa.PrivateKey // signs the tokens of customers

	mu       sync.Mutex          // guards the fields below
	grants   map[string]grant    // by code
	payments map[string]*payment // by order
	orders   map[string]order    // by id
	verifier *oidc.IDTokenVerifier
	verifies string // the URL of the engine whose tokens verifier checks
}

func newShop(url string, connection func() (Connection, error), log io.Writer) (*Shop, error) {
	pages, err := template.New("").Funcs(template.FuncMap{"money": money}).ParseFS(files, "pages/*.html")
	key, errKey := rsa.GenerateKey(rand.Reader, keyBits)
	return &Shop{
		url: url, connection: connection, pages: pages, client: &http.Client{Timeout: engineTimeout}, log: log, key: key,
		grants: map[string]grant{}, payments: map[string]*payment{}, orders: map[string]order{},
	}, errors.Join(err, errKey)
}

// readConnection reads the connection from a file.
func readConnection(path string) (c Connection, err error) {
	text, err := os.ReadFile(path) //nolint:gosec // the shop's operator names the file
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

func (s *Shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.showCatalogue)
	mux.HandleFunc("GET /.well-known/openid-configuration", s.discovery)
	mux.HandleFunc("GET /keys", s.keys)
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("GET /checkout", func(w http.ResponseWriter, r *http.Request) { s.atCheckout(w, r, nil) }) // from the storefront
	mux.HandleFunc("POST /checkout", s.pay)
	mux.HandleFunc("POST /checkout/cancel", s.cancel)
	mux.HandleFunc("POST /events", s.hear)
	mux.HandleFunc("GET /orders", s.showOrders)
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "pages/style.css") })
	// Forms of other sites are refused. Requests of the engine are not, because they have neither Origin nor Sec-Fetch-Site.
	next := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy(""))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer") // the checkout's address has the hold token
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// policy lets a page load only what the shop serves. "forms" is another site to which the page's forms may lead, or empty.
func policy(forms string) string {
	return "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' " + forms
}

func (s *Shop) show(w http.ResponseWriter, status int, page string, data any) {
	var body bytes.Buffer
	if err := s.pages.ExecuteTemplate(&body, page, data); err != nil {
		http.Error(w, "the page can't be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the browser may have left
}

// money writes an amount in the smallest unit of its currency, which may be a whole, a hundredth or a thousandth (ISO 4217).
func money(smallest int64, currency string) string {
	switch {
	case strings.Contains("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF", currency):
		return fmt.Sprintf("%s %d", currency, smallest)
	case strings.Contains("BHD IQD JOD KWD LYD OMR TND", currency):
		return fmt.Sprintf("%s %d.%03d", currency, smallest/1000, smallest%1000)
	}
	return fmt.Sprintf("%s %d.%02d", currency, smallest/100, smallest%100)
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8090", "address to listen on")
	connection := flag.String("connection", "connection.json", "file with engine, key and webhook_secret")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *connection, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr, connection string, log io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s, err := newShop("http://"+listener.Addr().String(), func() (Connection, error) { return readConnection(connection) }, log)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.routes(), ReadTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	go s.finishPayments(ctx)
	fmt.Fprintf(log, "shop is at %s\n", s.url)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
