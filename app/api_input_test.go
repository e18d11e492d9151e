package app_test

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// Ids that the server never issued are not found, wherever a path takes an id, on both databases. Row 20 of the drill has
// more odd texts.
func TestBadIDs(t *testing.T) {
	t.Parallel()
	kit.EachStores(t, func(t *testing.T, stores kit.Stores) {
		s := start(t, withStores(stores))
		made := s.createSale(nil)
		ann, operator, anyone := s.buyer("ann"), s.operator(), s.anyone()
		bought := ann.buy(made.ID, 1)
		before := s.balanced(made.ID)
		var probes []probe
		for _, id := range []string{
			made.ID + "%00", "%ff%fe", made.ID + "%20", "..%2F..%2Fadmin", strings.Repeat("A", 8000), strings.ToLower(made.ID),
			made.ID[:15] + "1",
			strings.Repeat("A", 48), bought.ID[:32] + strings.Repeat("A", 16), strings.ToLower(bought.ID), url.PathEscape("' OR '1'='1"),
			"%25",
			url.PathEscape("{" + made.ID + "}:gate"), "a%0d%0aX-Evil:%201",
		} {
			for _, route := range []string{
				"GET /api/v1/sales/{id}", "GET /api/v1/sales/{id}/events", "POST /api/v1/sales/{id}/path",
				"GET /api/v1/orders/{id}", "DELETE /api/v1/orders/{id}", "POST /api/v1/orders/{id}/payments",
				"PATCH /api/v1/admin/sales/{id}", "POST /api/v1/admin/sales/{id}/pause", "POST /api/v1/admin/sales/{id}/resume",
				"POST /api/v1/admin/sales/{id}/close", "GET /api/v1/admin/sales/{id}/audit", "GET /api/v1/admin/sales/{id}/orders",
				"GET /api/v1/admin/sales/{id}/orders.csv", "GET /api/v1/admin/sales/{id}/operations", "GET /api/v1/admin/sales/{id}/live",
				"GET /api/v1/admin/orders/{id}", "POST /api/v1/admin/orders/{id}/refund", "GET /s/{id}", "GET /pay/{id}", "GET /sales/{id}",
			} {
				method, path, _ := strings.Cut(strings.Replace(route, "{id}", id, 1), " ")
				probes = append(probes, probe{operator, method, path, fields{}, []int{404}})
			}
			one := fields{"quantity": 1}
			probes = append(probes,
				probe{ann, "POST", strings.Replace(ann.orderURL(made.ID), made.ID, id, 1), one, []int{403, 404}},
				probe{ann, "POST", "/api/v1/sales/" + made.ID + "/" + id + "/orders", one, []int{403, 404}})
		}
		for _, id := range []string{"\xff", "\x00", "'", "🍵"} {
			cursor := base64.RawURLEncoding.EncodeToString([]byte("1." + strings.Repeat(id, 48/len(id))))
			probes = append(probes, probe{ann, "GET", "/api/v1/orders?cursor=" + cursor, nil, []int{200, 400}})
		}
		for _, name := range []string{"🍵", "admin\x00", "ADMIN", "admin ", "ádmin", "' OR 1=1 --", "", strings.Repeat("a", 1000)} {
			login := fields{"name": name, "password": adminPassword}
			probes = append(probes, probe{anyone, "POST", "/api/v1/sessions", login, []int{401}})
		}
		for i, a := range askAll(t, probes) {
			if a.clean(); !slices.Contains(probes[i].want, a.status) {
				t.Errorf("%.200s: %d %.200s, want %v", a.what, a.status, a.body, probes[i].want)
			}
		}
		s.wantBooks(made.ID, before)
	})
}

// askAll sends the requests, several at a time: the server takes its time before it says that a sale is absent.
func askAll(t testing.TB, probes []probe) []*answer {
	t.Helper()
	answers, errs := make([]*answer, len(probes)), make([]error, len(probes))
	next := make(chan int)
	var askers sync.WaitGroup
	for range 16 {
		askers.Go(func() {
			for i := range next {
				p := probes[i]
				answers[i], errs[i] = p.who.try(t.Context(), p.method, p.path, p.body)
			}
		})
	}
	for i := range probes {
		next <- i
	}
	close(next)
	askers.Wait()
	check.NoError(t, errs...)
	return answers
}
