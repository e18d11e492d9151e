package strategy

import (
	"fmt"
	"slices"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// TestHole02_EachShareIsSoldToItsLastUnit: an instance that compares with its share by `<` leaves one unit of each share
// unsold. The wishes meet the shares exactly.
func TestHole02_EachShareIsSoldToItsLastUnit(t *testing.T) {
	check.EachInBubble(t, map[string]func(*Needs){
		"all": shareOf(1, 0), "a half": shareOf(0.5, 0), "a tenth": shareOf(0.1, 0), "the buffer": shareOf(0, 10),
	}, func(t *testing.T, share func(*Needs)) {
		for _, n := range []int{1, 2, 5} {
			b := newLocalBench(t, 10, share)
			b.want(n, slices.Repeat([]model.Verdict{model.Accepted}, 10/n)...)
			b.want(n, model.SoldOut)
			check.Same(t, fmt.Sprint("units left when each takes ", n), b.gate.left, 0)
		}
	})
}

// TestHole02_InstancesSellAllOfIt: as many buyers as units come to three instances at once, and none is refused.
func TestHole02_InstancesSellAllOfIt(t *testing.T) {
	const quota = 12
	eachPair(t, func(s *stores) {
		engines, o := s.locals(quota, 1.0/3, 1.0/2, 1)
		s.wantVerdicts(rush(o, quota, engines...), verdicts{model.Accepted: quota})
		engines[0].wantSold(o, quota, 0)
	})
}
