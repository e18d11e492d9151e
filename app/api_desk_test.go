package app_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Support finds an order of any sale by its number, its buyer and its payment, and sees what happened to it and who did it.
func TestOrdersOfAllSales(t *testing.T) {
	t.Parallel()
	s := start(t)
	pot, shoe := s.createSale(fields{"limit_per_user": 5}).ID, s.createCampaign(2, nil)
	ann, ben := s.buyer("ann.of.the.hill"), s.buyer("ben")
	annsPot, annsShoe := ann.buy(pot, 1).ID, ann.buy(shoe.Sales[1].ID, 1).ID
	bens := ben.buy(pot, 2).ID
	ann.pay(annsPot)
	ben.cancel(bens)
	ann.overdue(annsShoe)
	var payment string
	check.NoError(t, s.database().QueryRowContext(t.Context(), "SELECT id FROM payments WHERE order_id = ?", annsPot).Scan(&payment))
	type sold struct {
		order
		Title, Variant string
	}
	viewer := s.as("vic", model.RoleViewer)
	for words, want := range map[string][]string{
		annsPot: {annsPot}, model.OrderNumber(annsShoe): {annsShoe}, strings.ToLower(model.OrderNumber(bens)[:5]): {bens}, bens[:24]: {bens},
		"ann.of.the.hill": {annsPot, annsShoe}, "ann.o": {annsPot, annsShoe}, "ben": {bens}, payment: {annsPot}, "": {annsPot, annsShoe, bens},
		"nobody": nil, "ann": nil, "%ff": nil, "%27": nil,
	} {
		for _, limit := range []int{1, 500} {
			var got []string
			for _, o := range pages[sold](viewer, "/api/v1/admin/orders?q="+words, "orders", limit) {
				got = append(got, o.ID)
				check.Same(t, "what was sold", o.Title+" "+o.Variant, map[bool]string{true: "Runner 41", false: "Teapot "}[o.ID == annsShoe])
				check.Same(t, "buyer", o.UserID, map[bool]string{true: "ben", false: "ann.of.the.hill"}[o.ID == bens])
			}
			check.Same(t, words, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
		}
	}
	s.refund(annsPot).want(http.StatusOK)
	history := func(id string, payments int, want ...string) {
		t.Helper()
		var file struct {
			Order    sold
			Payments []struct{ Provider, Status string }
			History  []struct {
				At            time.Time
				Actor, Action string
			}
		}
		check.NoError(t, json.Unmarshal(viewer.get("/api/v1/admin/orders/"+id).body, &file))
		var got []string
		for i, e := range file.History {
			got = append(got, e.Actor+" "+e.Action)
			if i > 0 && e.At.Before(file.History[i-1].At) {
				t.Errorf("%+v is out of order", file.History)
			}
		}
		check.Same(t, "history", got, want)
		check.Same(t, "order", file.Order.ID, id)
		check.Same(t, "payments", len(file.Payments), payments)
	}
	history(annsPot, 1, "ann.of.the.hill order_made", "ann.of.the.hill payment_started", "sandbox order_paid", s.operator().user+" refund")
	history(bens, 0, "ben order_made", "ben order_cancelled")
	history(annsShoe, 0, "ann.of.the.hill order_made", "engine order_expired")
	viewer.call("GET", "/api/v1/admin/orders?cursor=x", nil).refused(http.StatusBadRequest, "bad_request")
	ben.call("GET", "/api/v1/admin/orders/"+bens, nil).refused(http.StatusForbidden, "forbidden")
}
