package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

const adminCatalog = "/api/v1/admin/catalog"

// entry is an entry of the catalog.
type entry struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Campaign  bool   `json:"campaign"`
	State     string `json:"state"`
	Sales     int    `json:"sales"`
	Lowest    int64  `json:"lowest_price_cents"`
	Highest   int64  `json:"highest_price_cents"`
	Quota     int64  `json:"quota"`
	Available int64  `json:"available"`
	Held      int64  `json:"held"`
	Paid      int64  `json:"paid"`
}

// The catalog has each campaign and each other sale once, and can be searched, filtered and sorted.
func TestCatalog(t *testing.T) {
	t.Parallel()
	s := start(t)
	pot := s.createSale(fields{"title": "Teapot 100%"}).ID
	later := s.createSale(fields{"title": "Kettle", "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)}).ID
	shoe := s.createCampaign(3, nil)
	ann := s.buyer("ann")
	ann.buy(shoe.Sales[1].ID, 2)
	ann.pay(ann.buy(pot, 1).ID)
	s.setStatus(later, "pause")
	for query, want := range map[string][]string{
		"": {pot, later, shoe.ID}, "q=TEA": {pot}, "q=100%25": {pot}, "q=0%25x": nil, "q=" + shoe.ID[:6]: {shoe.ID}, "q=runner": {shoe.ID}, "q=%ff": {pot, later, shoe.ID},
		"state=open": {pot, shoe.ID}, "state=paused": {later}, "state=upcoming": nil, "mode=rush": {pot, later, shoe.ID}, "mode=draw": nil,
		"sort=sold&state=open": {shoe.ID, pot}, "sort=start&q=e": {later, pot, shoe.ID},
	} {
		for _, limit := range []int{1, 500} {
			var got []string
			for _, e := range pages[entry](s.operator(), adminCatalog+"?"+query, "entries", limit) {
				got = append(got, e.ID)
			}
			if !strings.HasPrefix(query, "sort=sold") { // the others may have been made, or start, in the same millisecond
				slices.Sort(got)
				want = slices.Sorted(slices.Values(want))
			}
			check.Same(t, query, got, want)
		}
	}
	for _, e := range pages[entry](s.operator(), adminCatalog, "entries", 9) {
		switch e.ID {
		case shoe.ID:
			check.Same(t, "the campaign", e, entry{shoe.ID, "Runner", true, "open", 3, 9900, 9902, 30, 28, 2, 0})
		case later:
			check.Same(t, "state before the start", e.State, "paused")
		}
	}
	for _, query := range []string{"state=closed", "mode=x", "sort=price", "limit=0", "cursor=x"} {
		field, _, _ := strings.Cut(query, "=")
		check.Same(t, query, s.operator().call("GET", adminCatalog+"?"+query, nil).refused(http.StatusBadRequest, "bad_request").Field, field)
	}
}

// With 5,000 sales, a page of the list takes less than 100 kB, however it is searched, filtered and sorted. Run with -v, the test
// tells the times.
func TestFiveThousandSales(t *testing.T) {
	t.Parallel()
	const sales, most = 5000, 100_000
	kit.EachStores(t, func(t *testing.T, stores kit.Stores) {
		s := start(t, withStores(stores))
		made := s.createSale(nil).ID
		order := s.buyer("ann").buy(made, 1).ID
		tx, err := s.database().BeginTx(t.Context(), nil)
		check.NoError(t, err)
		for i := range sales {
			id, from := model.NewSaleID(), int64(i)*86_400_000
			_, err := tx.ExecContext(t.Context(), `INSERT INTO sales (id, code, title, description, image_url, price_cents, original_price_cents, currency,
				limit_per_user, pay_timeout_seconds, starts_at_ms, ends_at_ms, status, revision, created_at_ms)
				VALUES (?, ?, ?, ?, '/a.webp', 990, 0, 'CNY', 2, 600, ?, ?, 'live', 1, ?)`,
				id, id[:8], strings.Repeat("茶", 190)+fmt.Sprint(i), strings.Repeat("壶", 2000), from, from+1, from)
			check.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), `INSERT INTO stock (sale_id, quota, available, held, paid, version, epoch, epoch_at_ms)
				VALUES (?, 9, 0, 0, 9, 1, 0, 0)`, id)
			check.NoError(t, err)
		}
		check.NoError(t, tx.Commit())
		for _, path := range []string{
			adminCatalog, adminCatalog + "?sort=start", adminCatalog + "?sort=sold&state=ended&mode=rush&q=%E8%8C%B6",
			"/api/v1/admin/orders?q=" + model.OrderNumber(order)[:4], "/api/v1/admin/orders?q=ann",
		} {
			s.operator().get(path) // what is read once is in memory
			began := time.Now()
			a := s.operator().get(path)
			t.Logf("%s: %s, %d bytes", path, time.Since(began), len(a.body))
			if len(a.body) > most {
				t.Errorf("%s: %d bytes", path, len(a.body))
			}
		}
		check.Same(t, "entries", len(pages[entry](s.operator(), adminCatalog, "entries", 500)), sales+1)
	})
}

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
