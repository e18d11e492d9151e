package strategy

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"flashsale/model"
)

// TestHole02_EachShareIsSoldToItsLastUnit: where an instance compares what it sold with its share by `<`, one unit of
// each share stays unsold. The buyers' wishes meet the share exactly, in every way that a share can come about.
func TestHole02_EachShareIsSoldToItsLastUnit(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for name, share := range map[string]func(*Needs){"all": shareOf(1, 0), "a half": shareOf(0.5, 0), "a tenth": shareOf(0.1, 0), "the buffer": shareOf(0, 10)} {
			t.Run(fmt.Sprint(name, ", ", n, " each"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newLocalBench(t, 10, share)
					for range 10 / n {
						b.want(n, model.Accepted)
					}
					b.want(n, model.SoldOut)
					if b.gate.left != 0 {
						t.Errorf("%d units are left", b.gate.left)
					}
				})
			})
		}
	}
}

// TestHole02_InstancesSellAllOfIt: the same over real stores and three instances. As many buyers as there are units come
// at once: nobody may be turned away.
func TestHole02_InstancesSellAllOfIt(t *testing.T) {
	const quota, instances = 12, 3
	eachPair(t, func(s *stores) {
		var engines []*engine
		for i := range instances {
			engines = append(engines, s.engine("local", shareOf(1/float64(instances-i), 0)))
		}
		o := engines[0].sale(quota, 1)
		for _, e := range engines[1:] {
			if err := e.catalog.Refresh(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
		var refused atomic.Int64
		crowd(quota, func(i int) {
			e := engines[i%instances]
			if got, err := e.strategy.Deduct(s.Context(), e.keyless(o, fmt.Sprint("u-", i))); err != nil || !got.Queued() {
				refused.Add(1)
			}
		})
		if refused.Load() > 0 {
			s.Errorf("%d of %d buyers were turned away", refused.Load(), quota)
		}
		engines[0].sold(o, quota, 0)
		engines[0].agree(o)
	})
}
