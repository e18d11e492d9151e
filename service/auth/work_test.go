package auth

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// solved does the work of a challenge, and returns the solution with changes of its fields.
func solved(t testing.TB, c Challenge, changes map[string]any) string {
	t.Helper()
	number := uint64(0)
	for workHash(c.Salt, number) != c.Challenge {
		if number++; number > uint64(c.MaxNumber) {
			t.Fatal("the challenge has no solution")
		}
	}
	solution := map[string]any{"algorithm": c.Algorithm, "challenge": c.Challenge, "number": number, "salt": c.Salt, "signature": c.Signature, "took": 12}
	for name, value := range changes {
		solution[name] = value
	}
	return base64.StdEncoding.EncodeToString(check.Must(json.Marshal(solution)))
}

// A solution is good for its user and sale until it expires.
func TestWorks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	works := NewWorks([]byte("a secret"), func() time.Time { return now })
	c := works.Issue("ann", "SALE", 1000)
	good := solved(t, c, nil)
	check.Same(t, "its own", works.Check(good, "ann", "SALE"), true)
	check.Same(t, "again", works.Check(good, "ann", "SALE"), true)
	other := NewWorks([]byte("another"), works.now).Issue("ann", "SALE", 1000)
	later := strings.Replace(c.Salt, "expires=18", "expires=19", 1)
	for what, wrong := range map[string]struct{ solution, user, sale string }{
		"another user":      {good, "bob", "SALE"},
		"another sale":      {good, "ann", "SOLE"},
		"another number":    {solved(t, c, map[string]any{"number": 1001}), "ann", "SALE"},
		"a negative number": {solved(t, c, map[string]any{"number": -1}), "ann", "SALE"},
		"another signature": {solved(t, c, map[string]any{"signature": other.Signature}), "ann", "SALE"},
		"another algorithm": {solved(t, c, map[string]any{"algorithm": "SHA-1"}), "ann", "SALE"},
		"a later expiry":    {solved(t, c, map[string]any{"salt": later}), "ann", "SALE"},
		"a hash of the own": {solved(t, c, map[string]any{"salt": later, "number": 1, "challenge": workHash(later, 1)}), "ann", "SALE"},
		"of another secret": {solved(t, other, nil), "ann", "SALE"},
		"no base64":         {"?", "ann", "SALE"},
		"no JSON":           {"AAAA", "ann", "SALE"},
		"too long":          {good + strings.Repeat("A", maxWork), "ann", "SALE"},
		"none":              {"", "ann", "SALE"},
		"an owner's text":   {solved(t, c, map[string]any{"challenge": "SALE\x00ann", "signature": works.owner("ann", "SALE")}), "ann", "SALE"},
	} {
		check.Same(t, what+" is accepted", works.Check(wrong.solution, wrong.user, wrong.sale), false)
	}
	now = now.Add(workTime - 1)
	check.Same(t, "until it expires", works.Check(good, "ann", "SALE"), true)
	now = now.Add(1)
	check.Same(t, "when it has expired", works.Check(good, "ann", "SALE"), false)
}

// No text but a genuine solution is accepted.
func FuzzWork(f *testing.F) {
	works := NewWorks([]byte("a secret"), func() time.Time { return time.Unix(1_800_000_000, 0) })
	c := works.Issue("ann", "SALE", 10)
	good := solved(f, c, nil)
	f.Add(`{"algorithm":"SHA-256","challenge":"","number":0,"salt":"&","signature":""}`)
	f.Add(`{"number":` + strconv.FormatUint(1<<63, 10) + `}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		for _, solution := range []string{text, base64.StdEncoding.EncodeToString([]byte(text))} {
			if works.Check(solution, "ann", "SALE") && !strings.Contains(text, c.Signature) && solution != good {
				t.Errorf("%q is accepted", text)
			}
		}
	})
}
