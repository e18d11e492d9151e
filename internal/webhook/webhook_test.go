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
			listener, err := net.Listen("tcp", "127.0.0.1:0")
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
	for text, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true,
		"127.0.0.1": false, "::1": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00::1": false, "100.64.0.1": false, "224.0.0.1": false,
		"ff02::1": false, "255.255.255.255": false, "198.18.0.1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "0.1.2.3": false,
	} {
		check.Same(t, text, IsPublic(netip.MustParseAddr(text).Unmap()), want)
	}
}
