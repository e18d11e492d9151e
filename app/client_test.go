package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/app"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

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

// operator is the operator, who logged in when the app had started.
func (s *server) operator() *client {
	c := s.anyone()
	c.user, c.token = service.OperatorName, s.operatorToken
	return c
}

func (s *server) as(user string, role model.Role) *client {
	s.t.Helper()
	token, _, err := auth.NewTokens([]byte(testSecret), time.Now).Sign(model.Identity{UserID: user, Role: role}, time.Hour)
	check.NoError(s.t, err)
	c := s.anyone()
	c.user, c.token = user, token
	return c
}

// operatorTokenOf returns a token as the operator gets it at a log-in, without the time that the password's hash takes.
func operatorTokenOf(a *app.App) (token string, err error) {
	account, _, err := a.Stores.Database.Account(context.Background(), service.OperatorName)
	if err == nil {
		token, _, err = a.Tokens.Sign(model.Identity{UserID: account.ID, Role: account.Role, Stamp: a.Tokens.Stamp(account)}, time.Hour)
	}
	return token, err
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
	check.NoError(c.t, err)
	return a
}

// get sends a GET request, which must be answered with 200. post sends a POST request in the same way.
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

// slow ends the test if the answer says, against what is wanted, that the engine has not finished in time.
func (a *answer) slow(want int) {
	a.t.Helper()
	if a.status != want && (a.status == http.StatusServiceUnavailable || a.status == http.StatusAccepted && want == http.StatusCreated) {
		pace.Fatalf(a.t, "%s: %d %s, want %d", a.what, a.status, a.body, want)
	}
}

// want ends the test unless the answer has this status.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	a.slow(status)
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
	Rank      *int64 `json:"rank"`  // of a buyer who is not called
	Serving   *int64 `json:"serving"`
	RequestID string `json:"request_id"`
}

// refused ends the test unless the answer is a refusal with this status and code.
func (a *answer) refused(status int, code string) problem {
	a.t.Helper()
	a.slow(status)
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
		check.NoError(c.t, json.Unmarshal(page[list], &entries), json.Unmarshal(page["next_cursor"], &cursor))
		if len(entries) > limit || turned > 100 {
			c.t.Fatalf("page %d of %s has %d entries", turned, path, len(entries))
		}
		if all = append(all, entries...); cursor == "" {
			return all
		}
	}
}
