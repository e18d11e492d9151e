package repository

import (
	"fmt"
	"sync/atomic"
	"testing"

	"flashsale/model"
)

func TestAccounts(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		alice := model.Account{ID: "u1", Name: "alice", PasswordHash: "hash", Role: model.RoleBuyer}
		olga := model.Account{ID: "u2", Name: "olga", PasswordHash: "other", Role: model.RoleOperator}
		for _, step := range []struct {
			name    string
			account model.Account
			want    bool
		}{
			{"a buyer", alice, true},
			{"an operator", olga, true},
			{"a name that is taken", model.Account{ID: "u3", Name: "alice", PasswordHash: "stolen", Role: model.RoleOperator}, false},
			{"an id that is taken", model.Account{ID: "u1", Name: "bob", PasswordHash: "stolen", Role: model.RoleOperator}, false},
			{"the same again", alice, false},
			{"a name in another case", model.Account{ID: "u4", Name: "Alice", PasswordHash: "h", Role: model.RoleBuyer}, true},
		} {
			t.Run(step.name, func(t *testing.T) {
				if ok, err := d.CreateAccount(t.Context(), step.account); ok != step.want || err != nil {
					t.Errorf("created: %t, %v", ok, err)
				}
			})
		}
		if err := d.SetPassword(t.Context(), "alice", "fresh"); err != nil {
			t.Fatal(err)
		}
		alice.PasswordHash = "fresh"
		for name, want := range map[string]model.Account{"alice": alice, "olga": olga, "bob": {}, "": {}, "' OR '1'='1": {}} {
			got, ok, err := d.Account(t.Context(), name)
			if err != nil || ok != (want != model.Account{}) || got != want {
				t.Errorf("%q is %+v, %t, %v, want %+v", name, got, ok, err, want)
			}
		}
	})
}

func TestOneOfManyGetsAName(t *testing.T) {
	const crowd = 12
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := []*testDB{d, d.peer(t)}
		var created atomic.Int32
		together(crowd, func(i int) {
			ok, err := stores[i%2].CreateAccount(t.Context(), model.Account{ID: fmt.Sprint("u", i), Name: "alice", PasswordHash: "h", Role: model.RoleBuyer})
			if err != nil {
				t.Errorf("create: %v", err)
			}
			if ok {
				created.Add(1)
			}
		})
		if n := created.Load(); n != 1 {
			t.Errorf("%d accounts of one name", n)
		}
	})
}
