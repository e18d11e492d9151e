package repository

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestAccounts(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		alice := model.Account{ID: "u1", Name: "alice", PasswordHash: "hash", Role: model.RoleBuyer}
		olga := model.Account{ID: "u2", Name: "olga", PasswordHash: "other", Role: model.RoleOperator}
		upper := model.Account{ID: "u4", Name: "Alice", PasswordHash: "h", Role: model.RoleBuyer}
		for _, step := range []struct {
			name    string
			account model.Account
			want    bool
		}{
			{"a buyer", alice, true},
			{"an operator", olga, true},
			{"a name that is taken", model.Account{ID: "u3", Name: "alice", PasswordHash: "stolen", Role: model.RoleOperator}, false},
			{"an id that is taken", model.Account{ID: "u1", Name: "bob", PasswordHash: "stolen", Role: model.RoleOperator}, false},
			{"the same account again", alice, false},
			{"a name that differs in case", upper, true},
		} {
			check.Same(t, "created: "+step.name, check.Must(d.CreateAccount(t.Context(), step.account)), step.want)
		}
		check.NoError(t, d.SetPassword(t.Context(), "alice", "fresh"))
		alice.PasswordHash = "fresh"
		stored := map[string]model.Account{"alice": alice, "Alice": upper, "olga": olga, "bob": {}, "": {}, "' OR '1'='1": {}}
		for name, want := range stored {
			got, ok, err := d.Account(t.Context(), name)
			check.Same(t, name+" has a time", got.CreatedAt.IsZero(), !ok)
			got.CreatedAt = time.Time{}
			if err != nil || ok != (want != model.Account{}) || got != want {
				t.Errorf("%q is %+v, %t, %v, want %+v", name, got, ok, err, want)
			}
		}
	})
}

func TestOneOfManyGetsAName(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		created := check.Collect(12, func(i int) bool {
			a := model.Account{ID: fmt.Sprint("u", i), Name: "alice", PasswordHash: "h", Role: model.RoleBuyer}
			ok, err := stores[i%2].CreateAccount(t.Context(), a)
			check.Error(t, "create an account", err, nil)
			return ok
		})
		check.Same(t, "accounts of the name", trues(created), 1)
	})
}

func TestStaff(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		ctx := t.Context()
		buyer := model.Account{ID: "u-1", Name: "alice", PasswordHash: "h", Role: model.RoleBuyer}
		olga := model.Account{ID: "operator:olga", Name: "olga", PasswordHash: "h", Role: model.RoleViewer}
		shop := model.Account{ID: "key:shop", Name: "shop", PasswordHash: "k", Role: model.RoleSupport}
		check.Same(t, "created: a buyer", check.Must(d.CreateAccount(ctx, buyer)), true)
		for _, a := range []model.Account{shop, olga} {
			check.Same(t, "created: "+a.ID, check.Must(d.CreateStaff(ctx, a, "admin")), true)
		}
		check.Same(t, "created: a name that is taken", check.Must(d.CreateStaff(ctx, model.Account{ID: "key:alice", Name: "alice", Role: model.RoleViewer}, "admin")), false)
		wants := func(what string, want ...model.Account) {
			t.Helper()
			got, err := d.Staff(ctx)
			check.NoError(t, err)
			for i := range got {
				if got[i].CreatedAt.IsZero() {
					t.Errorf("%s has no time", got[i].ID)
				}
				got[i].CreatedAt = time.Time{}
			}
			check.Same(t, what, got, want)
		}
		wants("made", olga, shop)
		changed, ok, err := d.ChangeStaff(ctx, "olga", model.RoleOperator, "", "admin")
		if olga.Role = model.RoleOperator; err != nil || !ok || changed.Role != olga.Role || changed.PasswordHash != "h" {
			t.Errorf("%+v, %t, %v", changed, ok, err)
		}
		_, ok, err = d.ChangeStaff(ctx, "shop", "", "k2", "admin")
		check.NoError(t, err)
		check.Same(t, "changed", ok, true)
		shop.PasswordHash = "k2"
		wants("changed", olga, shop)
		for _, absent := range []string{"alice", "nobody"} { // a buyer is not of the staff
			_, changed, err := d.ChangeStaff(ctx, absent, model.RoleOperator, "", "admin")
			check.NoError(t, err)
			_, removed, err := d.RemoveStaff(ctx, absent, "admin")
			check.NoError(t, err)
			check.Same(t, absent+" is changed or removed", changed || removed, false)
		}
		check.NoError(t, d.Used(ctx, shop.ID))
		list, err := d.Staff(ctx)
		check.NoError(t, err)
		if !list[0].UsedAt.IsZero() || list[1].UsedAt.IsZero() {
			t.Errorf("used at %v and %v", list[0].UsedAt, list[1].UsedAt)
		}
		_, ok, err = d.RemoveStaff(ctx, "shop", "olga")
		check.NoError(t, err)
		check.Same(t, "removed", ok, true)
		wants("removed", olga)
		entries, _, err := d.Operations(ctx, model.StaffSubject, "", 10)
		check.NoError(t, err)
		var log []string
		for _, e := range entries {
			log = append(log, e.Actor+" "+e.Action+" "+e.Detail)
		}
		check.Same(t, "log", log, []string{
			"olga remove key:shop", "admin change key:shop: a new secret", "admin change operator:olga: viewer -> operator",
			"admin create operator:olga, viewer", "admin create key:shop, support",
		})
	})
}
