package worker

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/service"
	"flashsale/test/kit/check"
)

// controlling is a controller over fakes.
type controlling struct {
	*fakeStores
	controller *Controller
	gates      *service.Gates
	changed    chan struct{}
	reports    int
	errReport  error
}

// testController runs a test beside a controller.
func testController(t *testing.T, test func(t *testing.T, c *controlling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &controlling{fakeStores: newFakeStores(), changed: make(chan struct{}, 1)}
		c.gates = service.NewGates(c, fakeGate{c.fakeStores}, c.catalog, false, slog.New(slog.DiscardHandler))
		c.controller = &Controller{
			Catalog: c.catalog, Gates: c.gates, SoldOut: &service.SoldOut{}, Shop: service.NewShop(c), Changed: c.changed, Log: slog.New(c.log),
			Report: func(context.Context) error {
				defer locked()()
				c.reports++
				return c.errReport
			},
		}
		during(t, c.controller.Run, func() { test(t, c) })
	})
}

// wantAvailable compares the units that the catalog shows.
func (c *controlling) wantAvailable(t *testing.T, when string, want int64) {
	t.Helper()
	list := c.catalog.Live()
	check.Same(t, "the units in the catalog "+when, list[0].Stock.Available, want)
}

// The controller reads the shop each second.
func TestControllerReadsTheShop(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		with(func() { c.shop.Name = "Tea" })
		pass(shopPeriod - time.Millisecond)
		check.Same(t, "name before a period is over", c.controller.Shop.Shown().Name, "")
		pass(time.Millisecond)
		check.Same(t, "name after a period", c.controller.Shop.Shown().Name, "Tea")
	})
}

// The controller refreshes the catalog in each period, and at once when another instance announces a change.
func TestControllerRefreshes(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		sell := func(available int64) { with(func() { c.offer.Stock.Available = available }) }
		c.wantAvailable(t, "at first", 10)
		sell(9)
		pass(refreshPeriod - time.Millisecond)
		c.wantAvailable(t, "before a period is over", 10)
		pass(time.Millisecond)
		c.wantAvailable(t, "after a period", 9)
		sell(8)
		c.changed <- struct{}{}
		synctest.Wait()
		c.wantAvailable(t, "after an announcement", 8)
	})
}

// A gate that is needed is installed at once; a gate that is missing or has to be replaced, within a second.
func TestControllerInstallsGates(t *testing.T) {
	need := func(c *controlling) { c.gates.NeedGate(saleA) }
	replace := func(c *controlling) { c.gates.ReplaceGate(saleA, 1, "test") }
	lose := func(c *controlling) { c.loseGate() }
	type row struct {
		ask   func(c *controlling)
		after time.Duration
		want  int
	}
	check.Each(t, map[string]row{
		"nothing is wrong":        {func(*controlling) {}, 3 * ensurePeriod, 0},
		"needed and there":        {need, 0, 0},
		"needed and absent":       {func(c *controlling) { lose(c); need(c) }, 0, 1},
		"to be replaced":          {replace, ensurePeriod, 1},
		"to be replaced, not yet": {replace, ensurePeriod - time.Millisecond, 0},
		"absent and unasked":      {lose, ensurePeriod, 1},
		"absent, not yet":         {lose, ensurePeriod - time.Millisecond, 0},
	}, func(t *testing.T, tc row) {
		testController(t, func(t *testing.T, c *controlling) {
			tc.ask(c)
			synctest.Wait()
			if tc.after > 0 {
				pass(tc.after)
			}
			check.Same(t, "the installed gates", c.installs, tc.want)
			check.Same(t, "the epochs", c.epochs, tc.want)
		})
	})
}

// A request that comes too soon after a rebuild is kept until another rebuild is allowed, since its reason is newer. A
// request to replace a gate that was replaced already does nothing.
func TestReplacementAskedTooSoon(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		c.gates.ReplaceGate(saleA, 1, "first")
		pass(ensurePeriod)
		c.gates.ReplaceGate(saleA, 2, "second")
		pass(ensurePeriod / 2)
		check.Same(t, "the gates within half a second", c.installs, 1)
		pass(ensurePeriod)
		check.Same(t, "the gates for two requests", c.installs, 2)
		c.gates.ReplaceGate(saleA, 2, "late")
		pass(3 * ensurePeriod)
		check.Same(t, "the gates after a late request", c.installs, 2)
	})
}

// The loops of the controller go on when the stores are back. The controller reports this instance's figures each second,
// and logs the first of several failures of each loop.
func TestControllerOutlivesItsStores(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		with(func() { c.errNow = errAway })
		with(func() { c.errGate = errAway })
		c.loseGate()
		pass(3 * ensurePeriod)
		check.Same(t, "the lines about the catalog", c.log.Count("refresh of the catalog fails"), 1)
		check.Same(t, "the lines about the gates", c.log.Count("can't check the gates"), 1)
		check.Same(t, "the reports in three seconds, and the first", c.reports, 4)
		with(func() { c.errNow, c.offer.Stock.Available = nil, 5 })
		with(func() { c.errGate = nil })
		pass(ensurePeriod)
		c.wantAvailable(t, "afterwards", 5)
		check.Same(t, "the installed gates", c.installs, 1)
		with(func() { c.errReport = errAway })
		pass(3 * ensurePeriod)
		check.Same(t, "the lines about the reports", c.log.Count("report of this instance's figures fails"), 1)
	})
}
