package worker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeLines are lines that are always due. Looking after one of them hangs until ctx ends, or fails.
type fakeLines struct {
	hangs, fails string

	mu     sync.Mutex
	tended map[string]int
}

func (*fakeLines) Due() []string { return []string{"A", "B", "C"} }

func (f *fakeLines) Tend(ctx context.Context, saleID string) error {
	f.mu.Lock()
	f.tended[saleID]++
	f.mu.Unlock()
	switch saleID {
	case f.hangs:
		<-ctx.Done()
	case f.fails:
		return model.ErrUnavailable
	}
	return nil
}

// A line that hangs, because one of its rows is locked, or fails delays no other line.
func TestHole67_LinesAreApart(t *testing.T) {
	for name, f := range map[string]*fakeLines{"hangs": {hangs: "A"}, "fails": {fails: "A"}} {
		synctest.Test(t, func(t *testing.T) {
			f.tended = map[string]int{}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			lines := &Lines{Lease: func(context.Context, string, time.Duration) (bool, error) { return true, nil }, Log: slog.New(&check.Log{})}
			go func() {
				lines.tend(ctx, "caller", callPeriod, callLease, f.Due, f.Tend)
				close(ended)
			}()
			time.Sleep(time.Minute + callPeriod/2)
			f.mu.Lock()
			looks := int(time.Minute/callPeriod) + 1
			check.Same(t, name+": looks at the other lines", []int{f.tended["B"], f.tended["C"]}, []int{looks, looks})
			if f.tended["A"] > 40 {
				t.Errorf("%s: %d looks at it", name, f.tended["A"])
			}
			f.mu.Unlock()
			cancel()
			<-ended
		})
	}
}
