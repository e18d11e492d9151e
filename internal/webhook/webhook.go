// Package webhook sends messages to endpoints by the Standard Webhooks specification (https://www.standardwebhooks.com).
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flashsale/model"
)

const (
	// dialTimeout bounds the time to connect, and sendTimeout a whole try.
	dialTimeout = 5 * time.Second
	sendTimeout = 15 * time.Second
	// answerBytes bounds what is read of an answer's body.
	answerBytes = 400
	secretHead  = "whsec_"
	secretBytes = 32
)

// NewSecret makes a secret with which an endpoint verifies messages.
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

// NewSender creates a Sender. Unless "private" is true, it connects only to public addresses. "now" is the clock of timestamps.
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

// Send sends a message once, signed with each of the secrets. A repetition needs the same id. "answer" is the beginning of the
// answer's body. If there was no answer, "status" is 0, and "answer" says what went wrong.
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

var errPrivate = errors.New("the address is not public")

// onlyPublic refuses connections to addresses that are not public. It gets the resolved address of each connection, so it does
// not matter to what other addresses a host name resolves.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	if addr, err := netip.ParseAddrPort(address); err != nil || !IsPublic(addr.Addr()) {
		return fmt.Errorf("%w: %s", errPrivate, address)
	}
	return nil
}

// notPublic are networks of IPv4 that are not globally reachable (https://www.iana.org/assignments/iana-ipv4-special-registry),
// multicast (224.0.0.0/4), the relays of 6to4 (192.88.99.0/24), and the host of virtual machines at Azure (168.63.129.16).
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",
)

// public is the part of IPv6 for public addresses. exceptions are networks of this part for protocols such as Teredo, for
// documentation, and for 6to4 (https://www.iana.org/assignments/iana-ipv6-special-registry).
var public, exceptions = prefixes("2000::/3"), prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// IsPublic reports whether an address is public. It judges ::ffff:a.b.c.d as the IPv4 address a.b.c.d.
func IsPublic(ip netip.Addr) bool {
	within := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(network netip.Prefix) bool { return network.Contains(ip) })
	}
	if ip = ip.Unmap(); ip.Is4() {
		return !within(notPublic)
	}
	return ip.Zone() == "" && within(public) && !within(exceptions)
}
