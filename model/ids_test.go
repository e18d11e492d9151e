package model

import (
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Existing orders have ids that were derived in this way.
func TestIDsStayTheSame(t *testing.T) {
	const key = "the key that never changes"
	tests := map[string]struct{ key, user, sale, request, want string }{
		"plain":           {key, "u-1", "AAAAAAAAAAAAAAAA", "key", "AAAAAAAAAAAAAAAASIOBO2FFJ5N57W7J664USJFSISHZQU7F"},
		"empty parts":     {key, "", "AAAAAAAAAAAAAAAA", "", "AAAAAAAAAAAAAAAAERJXUYOR3YGQUAMDIQLIDTN3LXAPMMGX"},
		"bytes past 127":  {key, "用户", "ABCDEFGHIJKLMNOP", "k", "ABCDEFGHIJKLMNOPBXS4URM7P7FN7G4QTW6LULHMPBMOXHHS"},
		"the longest key": {key, "u", "MNOPQRSTUVWXYZ23", strings.Repeat("a-very-long-request-key-", 5) + "12345678", "MNOPQRSTUVWXYZ23ECWYWNXPBFK3MC2JPDFNN5WUIO66QMCH"},
		"a key past one block": {
			"a key longer than a block of the hash: a key longer than a block of the hash: a key longer",
			"u-1", "AAAAAAAAAAAAAAAA", "key", "AAAAAAAAAAAAAAAA4TJ7PPBHAZB4YQJ4CJXL7MGUKISZCFN7",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ids := NewOrderIDs([]byte(tc.key))
			for range 2 { // the second time, the state of the hash is a used one
				if got := ids.Derive(tc.user, tc.sale, tc.request); got != tc.want {
					t.Errorf("Derive returns %s, want %s", got, tc.want)
				}
				if number := OrderNumber(tc.want); number != tc.want[16:24] || OrderNumber(number) != "" {
					t.Errorf("the number of %s is %s", tc.want, number)
				}
				if !ids.Issued(tc.user, tc.want) || ids.Issued(tc.user+"x", tc.want) {
					t.Error("Issued does not distinguish the owner from another user")
				}
			}
		})
	}
}

func TestIDsOfManyAtOnce(t *testing.T) {
	ids := NewOrderIDs([]byte("a key"))
	derive := func(i int) string { return ids.Derive("u-"+strconv.Itoa(i), "AAAAAAAAAAAAAAAA", "key") }
	want := make([]string, 100)
	for i := range want {
		want[i] = derive(i)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i, id := range want {
				if got := derive(i); got != id {
					t.Errorf("user %d: %s, want %s", i, got, id)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkDerive(b *testing.B) {
	ids := NewOrderIDs([]byte("a key for benchmarks"))
	b.ReportAllocs()
	for b.Loop() {
		_ = ids.Derive("u-123456", "AAAAAAAAAAAAAAAA", "an idempotency key")
	}
}

// The id of a shadow sale and those of its orders say that they are; no other sale gets such an id, not even by chance.
func TestShadowIDs(t *testing.T) {
	hidden := NewShadowID()
	order := NewOrderIDs([]byte("key")).Derive("u-1", hidden, "k")
	if !ValidID(hidden, IDLength) || !IsShadow(hidden) || !IsShadow(order) || NewShadowID() == hidden {
		t.Errorf("the id %s, of an order %s", hidden, order)
	}
	if id := outOfShadow(hidden); IsShadow(id) || !ValidID(id, IDLength) || id[1:] != hidden[1:] || outOfShadow(id) != id {
		t.Errorf("%s became %s", hidden, id)
	}
	for role, sees := range map[Role]bool{RoleCrowd: true, RoleBuyer: false, RoleOperator: false, "": false} {
		if who := (Identity{Role: role}); who.Sees(hidden) != sees || who.Sees(order) != sees || who.Sees(NewSaleID()) == sees {
			t.Errorf("%q: what such a user sees", role)
		}
	}
}
