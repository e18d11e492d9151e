package service

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
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
	tokens := auth.NewTokens([]byte("0123456789abcdef0123456789abcdef"), time.Now)
	return &Accounts{Open: true, Store: store, Passwords: auth.NewPasswords(), Tokens: tokens}, store
}

// Where buyers have no accounts, the staff still logs in; where nobody has, not even the staff does.
func TestClosedAccounts(t *testing.T) {
	accounts, store := newAccounts()
	check.Must(accounts.EnsureOperator(t.Context(), goodPassword))
	_, verdict, _, err := accounts.Register(t.Context(), "alice", goodPassword)
	check.NoError(t, err)
	check.Same(t, "alice", verdict, model.Accepted)
	for _, tc := range []struct {
		open, off       bool
		register        model.Verdict
		alice, operator model.Verdict
	}{
		{true, false, model.Accepted, model.Accepted, model.Accepted},
		{false, false, model.Forbidden, model.Unauthenticated, model.Accepted},
		{false, true, model.Forbidden, model.Unauthenticated, model.Unauthenticated},
	} {
		accounts.Open, accounts.Off = tc.open, tc.off
		delete(store.byName, "bob")
		_, register, _, err := accounts.Register(t.Context(), "bob", goodPassword)
		check.NoError(t, err)
		_, alice, err := accounts.LogIn(t.Context(), "alice", goodPassword)
		check.NoError(t, err)
		_, operator, err := accounts.LogIn(t.Context(), OperatorName, goodPassword)
		check.NoError(t, err)
		check.Same(t, fmt.Sprintf("%+v", tc), []model.Verdict{register, alice, operator}, []model.Verdict{tc.register, tc.alice, tc.operator})
	}
}

const goodPassword = "correct horse"

func TestRegisterAndLogIn(t *testing.T) {
	accounts, store := newAccounts()
	first, verdict, invalid, err := accounts.Register(t.Context(), "alice", goodPassword)
	if err != nil || verdict != model.Accepted || invalid != nil || !model.ValidUserID(first.Account.ID) {
		t.Fatal(first, verdict, invalid, err)
	}
	if strings.Contains(store.byName["alice"].PasswordHash, goodPassword) {
		t.Errorf("the password is stored: %+v", first.Account)
	}
	again, verdict, err := accounts.LogIn(t.Context(), "alice", goodPassword)
	if err != nil || verdict != model.Accepted || !again.ExpiresAt.After(time.Now()) {
		t.Fatal(again, verdict, err)
	}
	for _, s := range []Session{first, again} {
		check.Same(t, "account", s.Account, store.byName["alice"])
		who := check.Must(accounts.Tokens.Verify(s.Token))
		check.Same(t, "user", who, model.Identity{UserID: first.Account.ID, Role: model.RoleBuyer})
	}
	if _, verdict, _, err := accounts.Register(t.Context(), "alice", goodPassword); verdict != model.NameTaken || err != nil {
		t.Errorf("the same name: %s, %v", verdict, err)
	}
	for name, tc := range map[string]struct{ name, password string }{
		"wrong password":    {"alice", "incorrect horse"},
		"no password":       {"alice", ""},
		"password too long": {"alice", strings.Repeat("x", maxPassword+1)},
		"unknown name":      {"alicia", goodPassword},
		"invalid name":      {"alice ", goodPassword},
		"name too long":     {strings.Repeat("a", 500), goodPassword},
	} {
		got, verdict, err := accounts.LogIn(t.Context(), tc.name, tc.password)
		if verdict != model.Unauthenticated || err != nil || got.Token != "" {
			t.Errorf("%s: %s, %v", name, verdict, err)
		}
	}
	store.err = errAway
	_, _, err = accounts.LogIn(t.Context(), "alice", goodPassword)
	check.Error(t, "log-in without a database", err, errAway)
	_, _, _, err = accounts.Register(t.Context(), "bob", goodPassword)
	check.Error(t, "registration without a database", err, errAway)
}

func TestRegisterRefuses(t *testing.T) {
	badName := &Invalid{Field: "name", Reason: BadName, Min: 3, Max: 32}
	badPassword := &Invalid{Field: "password", Reason: BadPassword, Min: 8, Max: 128}
	type test struct {
		name, password string
		verdict        model.Verdict
		want           *Invalid
	}
	check.Each(t, map[string]test{
		"name too short":           {"al", goodPassword, model.BadRequest, badName},
		"name too long":            {strings.Repeat("a", 33), goodPassword, model.BadRequest, badName},
		"name with a space":        {"al ice", goodPassword, model.BadRequest, badName},
		"name in Greek":            {"αλίκη", goodPassword, model.BadRequest, badName},
		"password too short":       {"alice", "1234567", model.BadRequest, badPassword},
		"password too long":        {"alice", strings.Repeat("x", maxPassword+1), model.BadRequest, badPassword},
		"password not UTF-8":       {"alice", "12345678\xff", model.BadRequest, badPassword},
		"the operator":             {"admin", goodPassword, model.NameTaken, nil},
		"the operator in capitals": {"ADMIN", goodPassword, model.NameTaken, nil},
	}, func(t *testing.T, tc test) {
		accounts, store := newAccounts()
		_, verdict, invalid, err := accounts.Register(t.Context(), tc.name, tc.password)
		check.Error(t, "registration", err, nil)
		check.Same(t, "verdict", verdict, tc.verdict)
		check.Same(t, "invalid field", invalid, tc.want)
		check.Same(t, "accounts", len(store.byName), 0)
	})
}

func TestEnsureOperator(t *testing.T) {
	accounts, store := newAccounts()
	logsIn := func(password string) bool {
		t.Helper()
		session, verdict, err := accounts.LogIn(t.Context(), OperatorName, password)
		check.Done(err)
		return verdict == model.Accepted && session.Account.Role == model.RoleOperator && session.Account.ID == OperatorName
	}
	ensure := func(password string) string {
		t.Helper()
		return check.Must(accounts.EnsureOperator(t.Context(), password))
	}
	made := ensure("")
	if len(made) < minPassword || !logsIn(made) {
		t.Errorf("the first start made %q", made)
	}
	if again := ensure(""); again != "" || !logsIn(made) {
		t.Errorf("the second start made %q", again)
	}
	if got := ensure("given by hand"); got != "" || !logsIn("given by hand") || logsIn(made) {
		t.Errorf("a start with a given password made %q", got)
	}
	hash := store.byName[OperatorName].PasswordHash
	check.Same(t, "password made at a start with the same password", ensure("given by hand"), "")
	check.Same(t, "hash after a start with the same password", store.byName[OperatorName].PasswordHash, hash)
	accounts, _ = newAccounts()
	check.Same(t, "password made at a first start with a given password", ensure("given by hand"), "")

	for _, given := range []string{"", "given by hand"} { // and another instance starts at the same time
		accounts, store = newAccounts()
		other := &Accounts{Store: store, Passwords: accounts.Passwords, Tokens: accounts.Tokens}
		store.beforeCreate = func() {
			store.beforeCreate = nil
			made = check.Must(other.EnsureOperator(t.Context(), ""))
		}
		if got := ensure(given); got != "" || made == "" || !logsIn(cmp.Or(given, made)) {
			t.Errorf("two first starts at once, one with the password %q: they made %q and %q", given, got, made)
		}
	}
	store.err = errAway
	_, err := accounts.EnsureOperator(t.Context(), "")
	check.Error(t, "without a database", err, errAway)
}
