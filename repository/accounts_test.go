package repository

import (
	"fmt"
	"testing"

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
