package service

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
)

// fakeAccounts keeps accounts by their names.
type fakeAccounts struct {
	byName map[string]model.Account
	err    error
	asked  int

	beforeCreate func() // of an account; nil: nothing happens
}

func (f *fakeAccounts) CreateAccount(_ context.Context, a model.Account) (bool, error) {
	if f.beforeCreate != nil {
		f.beforeCreate()
	}
	if _, taken := f.byName[a.Name]; taken || f.err != nil {
		return false, f.err
	}
	f.byName[a.Name] = a
	return true, nil
}

func (f *fakeAccounts) Account(_ context.Context, name string) (model.Account, bool, error) {
	f.asked++
	a, ok := f.byName[name]
	return a, ok, f.err
}

func (f *fakeAccounts) SetPassword(_ context.Context, name, hash string) error {
	a := f.byName[name]
	a.PasswordHash = hash
	f.byName[name] = a
	return f.err
}

func newAccounts() (*Accounts, *fakeAccounts) {
	store := &fakeAccounts{byName: map[string]model.Account{}}
	return &Accounts{Store: store, Passwords: auth.NewPasswords(), Tokens: auth.NewTokens([]byte("0123456789abcdef0123456789abcdef"), time.Now)}, store
}

const goodPassword = "correct horse"

func TestRegisterAndLogIn(t *testing.T) {
	accounts, store := newAccounts()
	session, verdict, invalid, err := accounts.Register(t.Context(), "alice", goodPassword)
	if err != nil || verdict != model.Accepted || invalid != nil {
		t.Fatal(verdict, invalid, err)
	}
	if session.Account.Role != model.RoleBuyer || !model.ValidUserID(session.Account.ID) || strings.Contains(store.byName["alice"].PasswordHash, goodPassword) {
		t.Errorf("made %+v", session.Account)
	}
	again, verdict, err := accounts.LogIn(t.Context(), "alice", goodPassword)
	if err != nil || verdict != model.Accepted || again.Account.ID != session.Account.ID || !again.ExpiresAt.After(time.Now()) {
		t.Fatal(again, verdict, err)
	}
	for _, s := range []Session{session, again} {
		if who, err := accounts.Tokens.Verify(s.Token); err != nil || who.UserID != session.Account.ID || who.Role != model.RoleBuyer {
			t.Errorf("the token is %+v's, %v", who, err)
		}
	}
	if _, verdict, _, err := accounts.Register(t.Context(), "alice", goodPassword); verdict != model.NameTaken || err != nil {
		t.Errorf("the name again: %s, %v", verdict, err)
	}
	for name, tc := range map[string]struct{ name, password string }{
		"wrong password":    {"alice", "incorrect horse"},
		"no password":       {"alice", ""},
		"password too long": {"alice", strings.Repeat("x", maxPassword+1)},
		"another name":      {"alicia", goodPassword},
		"a strange name":    {"alice ", goodPassword},
		"a name too long":   {strings.Repeat("a", 500), goodPassword},
	} {
		if got, verdict, err := accounts.LogIn(t.Context(), tc.name, tc.password); verdict != model.Unauthenticated || err != nil || got.Token != "" {
			t.Errorf("%s: %s, %v", name, verdict, err)
		}
	}
	store.err = errAway
	if _, _, err := accounts.LogIn(t.Context(), "alice", goodPassword); !errors.Is(err, errAway) {
		t.Errorf("no database: %v", err)
	}
	if _, _, _, err := accounts.Register(t.Context(), "bob", goodPassword); !errors.Is(err, errAway) {
		t.Errorf("no database: %v", err)
	}
}

func TestRegisterRefuses(t *testing.T) {
	badName := &Invalid{Field: "name", Reason: BadName, Min: 3, Max: 32}
	badPassword := &Invalid{Field: "password", Reason: BadPassword, Min: 8, Max: 128}
	tests := map[string]struct {
		name, password string
		verdict        model.Verdict
		want           *Invalid
	}{
		"a short name":         {"al", goodPassword, model.BadRequest, badName},
		"a long name":          {strings.Repeat("a", 33), goodPassword, model.BadRequest, badName},
		"a name with a space":  {"al ice", goodPassword, model.BadRequest, badName},
		"a name in Greek":      {"αλίκη", goodPassword, model.BadRequest, badName},
		"a short password":     {"alice", "1234567", model.BadRequest, badPassword},
		"a long password":      {"alice", strings.Repeat("x", maxPassword+1), model.BadRequest, badPassword},
		"a password in rags":   {"alice", "12345678\xff", model.BadRequest, badPassword},
		"the operator":         {"admin", goodPassword, model.NameTaken, nil},
		"the operator, louder": {"ADMIN", goodPassword, model.NameTaken, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			accounts, store := newAccounts()
			_, verdict, invalid, err := accounts.Register(t.Context(), tc.name, tc.password)
			if err != nil || verdict != tc.verdict || !reflect.DeepEqual(invalid, tc.want) {
				t.Errorf("%s, %+v, %v", verdict, invalid, err)
			}
			if len(store.byName) != 0 {
				t.Error("made nevertheless")
			}
		})
	}
}

// TestEnsureOperator at the first start, at a later one, with a password that was given, and with a new one.
func TestEnsureOperator(t *testing.T) {
	accounts, store := newAccounts()
	logsIn := func(password string) bool {
		t.Helper()
		session, verdict, err := accounts.LogIn(t.Context(), OperatorName, password)
		if err != nil {
			t.Fatal(err)
		}
		return verdict == model.Accepted && session.Account.Role == model.RoleOperator && session.Account.ID == OperatorName
	}
	ensure := func(password string) string {
		t.Helper()
		made, err := accounts.EnsureOperator(t.Context(), password)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	made := ensure("")
	if len(made) < minPassword || !logsIn(made) {
		t.Errorf("made %q", made)
	}
	if again := ensure(""); again != "" || !logsIn(made) {
		t.Errorf("the second start made %q", again)
	}
	if got := ensure("given by hand"); got != "" || !logsIn("given by hand") || logsIn(made) {
		t.Errorf("a password that was given: told %q", got)
	}
	hash := store.byName[OperatorName].PasswordHash
	if got := ensure("given by hand"); got != "" || store.byName[OperatorName].PasswordHash != hash {
		t.Errorf("the same again: told %q", got)
	}
	fresh, _ := newAccounts()
	if got, err := fresh.EnsureOperator(t.Context(), "given by hand"); got != "" || err != nil {
		t.Errorf("given at the first start: told %q, %v", got, err)
	}
	for _, given := range []string{"", "given by hand"} {
		accounts, store = newAccounts()
		other := &Accounts{Store: store, Passwords: accounts.Passwords, Tokens: accounts.Tokens}
		store.beforeCreate = func() { // another instance starts at the same time
			store.beforeCreate = nil
			var err error
			if made, err = other.EnsureOperator(t.Context(), ""); err != nil || made == "" {
				t.Fatalf("the other instance made %q, %v", made, err)
			}
		}
		if got := ensure(given); got != "" || !logsIn(cmp.Or(given, made)) {
			t.Errorf("two first starts at once, given %q: the second was told %q", given, got)
		}
	}
	store.err = errAway
	if _, err := accounts.EnsureOperator(t.Context(), ""); !errors.Is(err, errAway) {
		t.Errorf("no database: %v", err)
	}
}
