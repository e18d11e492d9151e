package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

// fakeStaff keeps the staff in memory.
type fakeStaff struct {
	list []model.Account
	err  error
	read int
	used []string
	slow func() // called in each reading; nil: nothing
}

func (f *fakeStaff) Staff(context.Context) ([]model.Account, error) {
	f.read++
	if f.slow != nil {
		f.slow()
	}
	return slices.Clone(f.list), f.err
}

func (f *fakeStaff) CreateStaff(_ context.Context, a model.Account, _ string) (bool, error) {
	if f.err != nil || f.at(a.Name) >= 0 {
		return false, f.err
	}
	f.list = append(f.list, a)
	return true, nil
}

func (f *fakeStaff) ChangeStaff(_ context.Context, name string, role model.Role, hash, _ string) (model.Account, bool, error) {
	i := f.at(name)
	if f.err != nil || i < 0 {
		return model.Account{}, false, f.err
	}
	if role != "" {
		f.list[i].Role = role
	}
	if hash != "" {
		f.list[i].PasswordHash = hash
	}
	return f.list[i], true, nil
}

func (f *fakeStaff) RemoveStaff(_ context.Context, name, _ string) (a model.Account, ok bool, err error) {
	i := f.at(name)
	if f.err != nil || i < 0 {
		return a, false, f.err
	}
	a = f.list[i]
	f.list = slices.Delete(f.list, i, i+1)
	return a, true, nil
}

func (f *fakeStaff) Used(_ context.Context, id string) error {
	f.used = append(f.used, id)
	return f.err
}

func (f *fakeStaff) at(name string) int {
	return slices.IndexFunc(f.list, func(a model.Account) bool { return a.Name == name })
}

type staffBench struct {
	*testing.T
	*Staff
	store *fakeStaff
	clock time.Time
}

func newStaff(t *testing.T) *staffBench {
	t.Helper()
	b := &staffBench{T: t, store: &fakeStaff{}, clock: time.Now()}
	now := func() time.Time { return b.clock }
	b.Staff = &Staff{Store: b.store, Passwords: auth.NewPasswords(), Tokens: auth.NewTokens([]byte("0123456789abcdef0123456789abcdef"), now), Now: now}
	return b
}

func (b *staffBench) create(name string, key bool, role model.Role) (secret string) {
	b.Helper()
	account, secret, verdict, invalid, err := b.Create(b.Context(), name, key, role, "admin")
	if err != nil || verdict != model.Accepted || invalid != nil || strings.Contains(account.PasswordHash, secret) {
		b.Fatal(account, verdict, invalid, err)
	}
	return secret
}

// token is a token from elsewhere, which has no stamp.
func (b *staffBench) token(user string, role model.Role) string {
	b.Helper()
	return b.sign(model.Identity{UserID: user, Role: role})
}

// logsIn returns the token of an account, as a log-in makes it.
func (b *staffBench) logsIn(name string) string {
	b.Helper()
	account := b.store.list[b.store.at(name)]
	return b.sign(model.Identity{UserID: account.ID, Role: account.Role, Stamp: b.Tokens.Stamp(account)})
}

func (b *staffBench) sign(who model.Identity) string {
	b.Helper()
	token, _, err := b.Tokens.Sign(who, time.Hour)
	check.NoError(b, err)
	return token
}

func (b *staffBench) wants(what, token string, user string, role model.Role) {
	b.Helper()
	check.Same(b, what, check.Must(b.Verify(token)), model.Identity{UserID: user, Role: role, Key: strings.HasPrefix(token, keyHead)})
}

func (b *staffBench) refuses(what, token string, want error) {
	b.Helper()
	if who, err := b.Verify(token); !errors.Is(err, want) || who != (model.Identity{}) {
		b.Errorf("%s: %+v, %v", what, who, err)
	}
}

// A token of a member of the staff has the role that its owner has now. Other tokens need no list.
func TestStaffTokens(t *testing.T) {
	b := newStaff(t)
	ann := b.token("ann", model.RoleBuyer)
	b.wants("a buyer", ann, "ann", model.RoleBuyer)
	b.wants("support of another issuer", b.token("boss", model.RoleSupport), "boss", model.RoleSupport)
	b.wants("a buyer of another issuer", b.token("operator:x", model.RoleBuyer), "operator:x", model.RoleBuyer)
	check.Same(t, "readings", b.store.read, 0)
	b.refuses("nobody of this name", b.token("operator:olga", model.RoleOperator), auth.ErrBadToken)
	b.create("olga", false, model.RoleViewer)
	olga := b.logsIn("olga")
	b.wants("a viewer", olga, "operator:olga", model.RoleViewer)
	_, verdict, _, err := b.SetRole(t.Context(), "olga", model.RoleSupport, "admin")
	check.NoError(t, err)
	check.Same(t, "verdict", verdict, model.Accepted)
	b.wants("support", olga, "operator:olga", model.RoleSupport)
	b.store.list[0].Role = model.RoleOperator // on another instance
	b.clock = b.clock.Add(rosterAge)
	b.wants("a second later", olga, "operator:olga", model.RoleOperator)
	read := b.store.read
	for range 5 {
		b.wants("at once", olga, "operator:olga", model.RoleOperator)
	}
	check.Same(t, "readings", b.store.read, read)
	_, verdict, err = b.Remove(t.Context(), "olga", "admin")
	check.NoError(t, err)
	check.Same(t, "verdict", verdict, model.Accepted)
	b.refuses("removed", olga, auth.ErrBadToken)
	b.wants("a buyer", ann, "ann", model.RoleBuyer)
}

// A token of the staff ends with the password, with the account, and where nobody logs in.
func TestStaffTokensEnd(t *testing.T) {
	b := newStaff(t)
	b.store.list = []model.Account{{ID: OperatorName, Name: OperatorName, PasswordHash: "first", Role: model.RoleOperator}}
	b.create("olga", false, model.RoleOperator)
	admin, olga := b.logsIn(OperatorName), b.logsIn("olga")
	b.wants("the built-in operator", admin, OperatorName, model.RoleOperator)
	b.store.list[0].PasswordHash = "second" // by the start of another instance
	b.clock = b.clock.Add(rosterAge)
	b.refuses("the built-in operator's password before", admin, auth.ErrBadToken)
	admin = b.logsIn(OperatorName)

	_, _, verdict, err := b.NewSecret(t.Context(), "olga", "admin")
	check.NoError(t, err)
	check.Same(t, "verdict", verdict, model.Accepted)
	b.refuses("the password before", olga, auth.ErrBadToken)
	olga = b.logsIn("olga")
	b.wants("the new password", olga, "operator:olga", model.RoleOperator)
	_, _, err = b.Remove(t.Context(), "olga", "admin")
	check.NoError(t, err)
	b.create("olga", false, model.RoleOperator)
	b.refuses("the account before", olga, auth.ErrBadToken)
	_, _, err = b.Remove(t.Context(), "olga", "admin")
	check.NoError(t, err)

	// No key has a token, and no account has one without its stamp, or with that of another account.
	key := b.create("olga", true, model.RoleOperator)
	for _, id := range []string{"key:olga", "operator:olga", OperatorName} {
		b.refuses(id, b.token(id, model.RoleOperator), auth.ErrBadToken)
		b.refuses(id, b.sign(model.Identity{UserID: id, Role: model.RoleOperator, Stamp: b.Tokens.Stamp(model.Account{ID: id})}), auth.ErrBadToken)
	}
	b.Off = true
	b.refuses("nobody logs in", admin, auth.ErrBadToken)
	b.wants("a key", key, "key:olga", model.RoleOperator)
}

// A change shows at once: whoever comes while another request reads the list waits for it, and is not judged by the one before.
func TestStaffChangesShowAtOnce(t *testing.T) {
	b := newStaff(t)
	b.create("olga", false, model.RoleOperator)
	b.wants("olga", b.logsIn("olga"), "operator:olga", model.RoleOperator)
	b.create("vera", false, model.RoleViewer)
	vera := b.logsIn("vera")
	reads, goOn := make(chan struct{}), make(chan struct{})
	b.store.slow = func() {
		close(reads)
		<-goOn
	}
	both := make(chan error, 2)
	verify := func() {
		_, err := b.Verify(vera)
		both <- err
	}
	go verify()
	<-reads
	b.store.slow = nil
	go verify()
	select {
	case err := <-both:
		t.Errorf("judged by the list before: %v", err)
		both <- err
	case <-time.After(50 * time.Millisecond): // no event shows that a request waits
	}
	close(goOn)
	for range 2 {
		if err := <-both; err != nil {
			t.Errorf("a viewer who was just made: %v", err)
		}
	}
}

func TestKeys(t *testing.T) {
	b := newStaff(t)
	first := b.create("shop", true, model.RoleSupport)
	if !strings.HasPrefix(first, "fs_shop_") || len(first) < len("fs_shop_")+26 {
		t.Errorf("key %q", first)
	}
	b.wants("the key", first, "key:shop", model.RoleSupport)
	for _, forged := range []string{first[:len(first)-1], first + "A", "fs_", "fs_shop_", strings.ToLower(first), b.store.list[0].PasswordHash, "fs_" + b.store.list[0].PasswordHash} {
		b.refuses(forged, forged, auth.ErrBadToken)
	}
	_, second, verdict, err := b.NewSecret(t.Context(), "shop", "admin")
	check.NoError(t, err)
	check.Same(t, "verdict", verdict, model.Accepted)
	b.refuses("the key before", first, auth.ErrBadToken)
	b.wants("the new key", second, "key:shop", model.RoleSupport)
	check.Same(t, "uses", b.store.used, []string{"key:shop"})
	b.clock = b.clock.Add(usePeriod)
	b.wants("a minute later", second, "key:shop", model.RoleSupport)
	check.Same(t, "uses", len(b.store.used), 2)
	_, _, err = b.Remove(t.Context(), "shop", "admin")
	check.NoError(t, err)
	b.refuses("revoked", second, auth.ErrBadToken)
}

// While the database is away, the last list holds. An instance that has none can't tell.
func TestStaffWithoutTheDatabase(t *testing.T) {
	b := newStaff(t)
	key := b.create("shop", true, model.RoleViewer)
	b.store.err = errAway
	b.refuses("no list", key, model.ErrUnavailable)
	b.refuses("no list", b.token("operator:olga", model.RoleViewer), model.ErrUnavailable)
	b.store.err = nil
	b.wants("the key", key, "key:shop", model.RoleViewer)
	b.store.err = errAway
	b.clock = b.clock.Add(time.Hour / 2)
	b.wants("the last list", key, "key:shop", model.RoleViewer)
	b.refuses("unknown", key+"A", auth.ErrBadToken)

	// The same holds after a change that was made here.
	b.store.err = nil
	_, verdict, _, err := b.SetRole(t.Context(), "shop", model.RoleSupport, "admin")
	check.NoError(t, err)
	check.Same(t, "verdict", verdict, model.Accepted)
	b.store.err = errAway
	b.wants("the last list", key, "key:shop", model.RoleViewer)
}

func TestStaffRefuses(t *testing.T) {
	b := newStaff(t)
	b.create("olga", false, model.RoleViewer)
	for _, tc := range []struct {
		name    string
		role    model.Role
		verdict model.Verdict
		field   string
	}{
		{"olga", model.RoleViewer, model.NameTaken, ""},
		{"Admin", model.RoleViewer, model.NameTaken, ""},
		{"x", model.RoleViewer, model.BadRequest, "name"},
		{"key:x", model.RoleViewer, model.BadRequest, "name"},
		{"peter", model.RoleBuyer, model.BadRequest, "role"},
		{"peter", "root", model.BadRequest, "role"},
	} {
		_, secret, verdict, invalid, err := b.Create(t.Context(), tc.name, false, tc.role, "admin")
		if err != nil || secret != "" || verdict != tc.verdict || (invalid != nil) != (tc.field != "") || invalid != nil && invalid.Field != tc.field {
			t.Errorf("%+v: %q, %s, %+v, %v", tc, secret, verdict, invalid, err)
		}
	}
	for name, want := range map[string]model.Verdict{"peter": model.NotFound, "admin": model.Forbidden, "ADMIN": model.Forbidden} {
		_, verdict, _, err := b.SetRole(t.Context(), name, model.RoleSupport, "admin")
		check.NoError(t, err)
		check.Same(t, "role of "+name, verdict, want)
		_, verdict, err = b.Remove(t.Context(), name, "admin")
		check.NoError(t, err)
		check.Same(t, "remove "+name, verdict, want)
	}
	_, _, verdict, err := b.NewSecret(t.Context(), "peter", "admin")
	check.NoError(t, err)
	check.Same(t, "secret of peter", verdict, model.NotFound)
	if _, verdict, invalid, err := b.SetRole(t.Context(), "olga", model.RoleBuyer, "admin"); verdict != model.BadRequest || invalid == nil || err != nil {
		t.Error(verdict, invalid, err)
	}
	check.Same(t, "olga is a", b.store.list[0].Role, model.RoleViewer)
}
