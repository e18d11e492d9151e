// Package webhook sends messages to endpoints by the Standard Webhooks specification
// (https://www.standardwebhooks.com).
package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flashsale/model"
)

const (
	// dialTimeout and sendTimeout bound a connection and a whole try.
	dialTimeout = 5 * time.Second
	sendTimeout = 15 * time.Second
	// answerBytes is how much of an answer is read. The connection is closed behind that.
	answerBytes = 400
	secretHead  = "whsec_"
	secretBytes = 32
)

// NewSecret makes a secret that an endpoint verifies messages with.
func NewSecret() string {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails
	return secretHead + base64.StdEncoding.EncodeToString(key)
}

// Sender sends messages.
type Sender struct {
	client *http.Client
	now    func() time.Time
}

// NewSender returns a sender. Unless private is true, it connects only to public addresses.
func NewSender(private bool, now func() time.Time) *Sender {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !private {
		dialer.Control = onlyPublic
	}
	return &Sender{now: now, client: &http.Client{
		Timeout: sendTimeout,
		Transport: &http.Transport{ // no proxy, which would connect to addresses that are refused here
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: 16 << 10, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Send sends a message once, signed with each of the secrets. Tries of the same message have the same id. status is 0 if
// there was no answer; answer is the beginning of its body, or what went wrong.
func (s *Sender) Send(ctx context.Context, url string, secrets []string, id string, body []byte) (status int, answer string) {
	status, answer, err := s.send(ctx, url, secrets, id, body)
	if err != nil {
		answer = err.Error()
	}
	return status, model.Excerpt(answer, answerBytes)
}

func (s *Sender) send(ctx context.Context, url string, secrets []string, id string, body []byte) (status int, answer string, err error) {
	now := s.now()
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return 0, "", errors.New("the secret is malformed")
		}
		if signatures[i], err = signer.Sign(id, now, body); err != nil {
			return 0, "", err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "flashsale")
	req.Header.Set(standardwebhooks.HeaderWebhookID, id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	res, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	head, _ := io.ReadAll(io.LimitReader(res.Body, answerBytes)) // only for display
	return res.StatusCode, string(head), nil
}

// errPrivate: the name has led to an address that no endpoint may have.
var errPrivate = errors.New("the address is not public")

// onlyPublic refuses connections to addresses that are not public. It sees the address of the connection itself, so a
// name that leads elsewhere at the second look-up does not help.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errPrivate, address)
	}
	if ip := addr.Addr().Unmap(); !IsPublic(ip) {
		return fmt.Errorf("%w: %s", errPrivate, ip)
	}
	return nil
}

// notPublic are networks that netip does not tell, of https://www.iana.org/assignments/iana-ipv4-special-registry and its
// counterpart for IPv6. Some of the latter contain addresses of IPv4.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
}

// IsPublic reports whether an address can belong to an endpoint outside.
func IsPublic(ip netip.Addr) bool {
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Zone() != "" { // also not loopback, link-local and multicast
		return false
	}
	for _, network := range notPublic {
		if network.Contains(ip) {
			return false
		}
	}
	return true
}
