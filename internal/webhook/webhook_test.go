package webhook

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"flashsale/test/kit/check"
)

// A message is signed with both secrets, so that a receiver may have either.
func TestSend(t *testing.T) {
	first, second := NewSecret(), NewSecret()
	var got http.Header
	var body []byte
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "thank\tyou\x00 ☕ "+strings.Repeat("x", 1000))
	}))
	t.Cleanup(receiver.Close)
	status, answer := NewSender(true, time.Now).Send(t.Context(), receiver.URL, []string{first, second}, "msg_1", []byte(`{"type":"events"}`))
	check.Same(t, "status", status, http.StatusAccepted)
	if !strings.HasPrefix(answer, "thank you  ☕ xxx") || len(answer) > answerBytes {
		t.Errorf("the answer is %q", answer)
	}
	for _, secret := range []string{first, second} {
		verifier, err := standardwebhooks.NewWebhook(secret)
		check.NoError(t, err)
		check.Error(t, "verify", verifier.Verify(body, got), nil)
	}
	verifier, err := standardwebhooks.NewWebhook(NewSecret())
	check.NoError(t, err)
	check.Error(t, "another secret", verifier.Verify(body, got), standardwebhooks.ErrNoMatchingSignature)
	if status, answer := NewSender(true, time.Now).Send(t.Context(), receiver.URL, []string{"whsec_*"}, "msg_1", nil); status != 0 || answer == "" {
		t.Errorf("with a malformed secret: %d %s", status, answer)
	}
}

// However long and odd what a receiver sends is, the answer is a text that can be stored, and is not cut inside a character.
func TestSendKeepsTextsWhole(t *testing.T) {
	for name, head := range map[string]string{
		"a body": "HTTP/1.1 500 E\r\n\r\n", "no HTTP": "", "a reason": "HTTP/1.1 ", "a header": "HTTP/1.1 500 E\r\n",
	} {
		for shift := range 4 { // so that a cut at any byte would be inside a character
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			check.NoError(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, head+strings.Repeat("x", shift)+strings.Repeat("🍵", 1000)+"\xf0\x9f\r\n\r\n")
				_ = conn.Close()
			}()
			_, answer := NewSender(true, time.Now).Send(t.Context(), "http://"+listener.Addr().String(), []string{NewSecret()}, "msg_1", []byte(`{}`))
			if answer == "" || !utf8.ValidString(answer) || utf8.RuneCountInString(answer) > answerBytes {
				t.Errorf("%s: the answer is %q", name, answer)
			}
		}
	}
}

// Addresses that are not public are refused, also behind names, and the connection itself is what is judged: a name that
// leads elsewhere at its second look-up gets no further.
func TestPublicAddresses(t *testing.T) {
	heard := false
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard = true }))
	t.Cleanup(receiver.Close)
	_, port, err := net.SplitHostPort(receiver.Listener.Addr().String())
	check.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		status, answer := NewSender(false, time.Now).Send(t.Context(), "http://"+net.JoinHostPort(strings.Trim(host, "[]"), port), nil, "msg_1", nil)
		if status != 0 || !strings.Contains(answer, errPrivate.Error()) {
			t.Errorf("%s: %d %s", host, status, answer)
		}
	}
	check.Same(t, "the receiver was reached", heard, false)
}

// The first and the last address of each network of IANA's registries of special purposes, and of what clouds use beside them,
// are not public; those next to it are, unless they are in another one.
func TestIsPublic(t *testing.T) {
	for network, around := range map[string][2]string{ // the addresses before and behind it, where those are public
		"0.0.0.0/8": {"", "1.0.0.0"}, "10.0.0.0/8": {"9.255.255.255", "11.0.0.0"}, "100.64.0.0/10": {"100.63.255.255", "100.128.0.0"},
		"127.0.0.0/8": {"126.255.255.255", "128.0.0.0"}, "169.254.0.0/16": {"169.253.255.255", "169.255.0.0"},
		"172.16.0.0/12": {"172.15.255.255", "172.32.0.0"}, "192.0.0.0/24": {"191.255.255.255", "192.0.1.0"},
		"192.0.2.0/24": {"192.0.1.255", "192.0.3.0"}, "192.88.99.0/24": {"192.88.98.255", "192.88.100.0"},
		"192.168.0.0/16": {"192.167.255.255", "192.169.0.0"}, "198.18.0.0/15": {"198.17.255.255", "198.20.0.0"},
		"198.51.100.0/24": {"198.51.99.255", "198.51.101.0"}, "203.0.113.0/24": {"203.0.112.255", "203.0.114.0"},
		"224.0.0.0/4": {"223.255.255.255", ""}, "240.0.0.0/4": {}, "255.255.255.255/32": {},
		"168.63.129.16/32": {"168.63.129.15", "168.63.129.17"},
		"::/128":           {}, "::1/128": {}, "::/96": {}, "64:ff9b::/96": {}, "64:ff9b:1::/48": {}, "100::/64": {}, "100:0:0:1::/64": {}, "1fff::/16": {},
		"2001::/23": {"2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"}, "2001::/32": {}, // Teredo
		"2001:db8::/32": {"2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"}, "2002::/16": {"2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"},
		"3fff::/20": {"3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"}, "4000::/3": {"3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		"5f00::/16": {}, "fc00::/7": {}, "fe80::/10": {}, "fec0::/10": {}, "ff00::/8": {},
	} {
		prefix := netip.MustParsePrefix(network)
		last := prefix.Addr().AsSlice()
		for bit := prefix.Bits(); bit < 8*len(last); bit++ {
			last[bit/8] |= 1 << (7 - bit%8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, ip := range []netip.Addr{prefix.Addr(), end} {
			check.Same(t, network+": "+ip.String(), IsPublic(ip), false)
			if ip.Is4() { // as IPv6 writes it
				check.Same(t, network+": in IPv6", IsPublic(netip.AddrFrom16(ip.As16())), false)
			}
		}
		for _, text := range around {
			if text != "" {
				check.Same(t, text, IsPublic(netip.MustParseAddr(text)), true)
			}
		}
	}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true, "2606:4700::1111%eth0": false, "169.254.169.254": false,
		"fe80::1%eth0": false, "::127.0.0.1": false, "::8.8.8.8": false, "64:ff9b::a9fe:a9fe": false, "2002:7f00:1::": false,
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": false, "fd00:ec2::254": false, "fec0::1": false,
	} {
		check.Same(t, text, IsPublic(netip.MustParseAddr(text)), want)
	}
	check.Same(t, "no address", IsPublic(netip.Addr{}), false)
}
