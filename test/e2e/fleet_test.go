package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit/shop"
)

// size returns the number for the short form or the full form.
func size(short, whole int) int {
	if full {
		return whole
	}
	return short
}

// weights are the weights of the three instances of a fleet.
var weights = []int{3, 2, 1}

// fleet is a shop with three instances. They trust nginx, which is on the first loopback address, and no other proxy.
type fleet struct {
	*shop.Shop
	instances []*shop.Instance
	settings  []string
}

func newFleet(t testing.TB) *fleet { return fleetOn(shop.New(t)) }

func fleetOn(s *shop.Shop, settings ...string) *fleet {
	f := &fleet{Shop: s, settings: append([]string{"--trusted-proxies", "127.0.0.1"}, settings...)}
	for i := range weights {
		// No client uses these addresses, so none can take the port of a killed instance.
		f.instances = append(f.instances, f.at(fmt.Sprintf("127.0.77.%d:0", i+1)))
	}
	return f
}

func (f *fleet) at(address string) *shop.Instance {
	return f.Start(append(f.settings, "--http-addr", address)...)
}

// revive starts a killed instance again at its address.
func (f *fleet) revive(n int) { f.instances[n] = f.at(address(f.instances[n].URL)) }

// sold waits until so many units of a sale are sold.
func (f *fleet) sold(t testing.TB, saleID string, units int) {
	t.Helper()
	shop.Recovered(t, fmt.Sprintf("%d units are sold", units), func() error {
		if stock := f.Books(saleID).Stock; stock.Held+stock.Paid < int64(units) {
			return fmt.Errorf("%d are", stock.Held+stock.Paid)
		}
		return nil
	})
}

// rushWhile lets a crowd buy through a door while a function runs.
func (f *fleet) rushWhile(saleID string, buyers int, door string, run func()) (attempts []shop.Attempt) {
	var rush sync.WaitGroup
	rush.Go(func() { attempts = f.Rush(saleID, "u", buyers, nil, door) })
	run()
	rush.Wait()
	return attempts
}

// lines returns the lines of instances.conf.
func (f *fleet) lines() (lines []string) {
	for i, instance := range f.instances {
		lines = append(lines, line(instance.URL, fmt.Sprintf("weight=%d max_fails=3 fail_timeout=3s", weights[i])))
	}
	return lines
}

// line returns the line of instances.conf for an instance.
func line(url, parameters string) string { return "server " + address(url) + " " + parameters + ";" }

func address(url string) string { return strings.TrimPrefix(url, "http://") }
