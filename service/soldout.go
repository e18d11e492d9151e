package service

import (
	"context"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/model"
)

// mostRemembered bounds the ids of a sale in memory, some 20 bytes each. If a sale has more, memory refuses none of its requests.
const mostRemembered = 1 << 20

// RefusalStore gives leases of refusals, and reads the ids of a sale's orders and durable refusals.
type RefusalStore interface {
	LeaseRefusals(ctx context.Context, saleIDs []string) (map[string]model.RefusalLease, error)
	KnownIDs(ctx context.Context, saleID string) iter.Seq2[[]string, error]
}

// SoldOut is this instance's memory of sold-out sales. Under a lease of a sale, it refuses a request if no order and no durable
// refusal has the request's order id. docs/adr/0007 explains why such a refusal is right.
type SoldOut struct {
	Store   RefusalStore
	Gate    Peeker // nil if the strategy uses no gates
	Catalog *Catalog
	Now     func() time.Time // this process's clock, with its monotonic part

	sales sync.Map // by id, *soldOutSale
}

type soldOutSale struct {
	asked  atomic.Bool // since the last Refresh
	memory atomic.Pointer[soldOutMemory]
}

type soldOutMemory struct {
	until time.Time // by this process's clock
	lease model.RefusalLease
	seed  maphash.Seed
	ids   map[uint64]struct{} // hashes of the known ids; nil: there are too many
}

// Refuses reports whether a request with this order id is refused as sold out. It returns false if memory can't tell. The next
// Refresh looks whether the sale can have a lease.
func (s *SoldOut) Refuses(saleID, orderID string) bool {
	found, ok := s.sales.Load(saleID)
	if !ok {
		found, _ = s.sales.LoadOrStore(saleID, &soldOutSale{})
	}
	sale := found.(*soldOutSale)
	if !sale.asked.Load() {
		sale.asked.Store(true)
	}
	m := sale.memory.Load()
	if m == nil || m.ids == nil || !s.Now().Before(m.until) {
		return false
	}
	_, known := m.ids[maphash.String(m.seed, orderID)]
	return !known
}

// Refresh gets or renews leases for the sales that Refuses was asked about since the last Refresh, as far as the database gives
// leases. It forgets the other sales.
func (s *SoldOut) Refresh(ctx context.Context) error {
	asked := map[string]*soldOutSale{}
	for key, value := range s.sales.Range {
		if sale := value.(*soldOutSale); sale.asked.Swap(false) {
			asked[key.(string)] = sale
		} else {
			s.sales.Delete(key)
		}
	}
	ids, err := s.exhausted(ctx, slices.Sorted(maps.Keys(asked)))
	if err != nil || len(ids) == 0 {
		return err
	}
	until := s.Now().Add(model.RefusalTime)
	leases, err := s.Store.LeaseRefusals(ctx, ids)
	if err != nil {
		return err
	}
	for id, lease := range leases {
		next := &soldOutMemory{until: until, lease: lease}
		if m := asked[id].memory.Load(); m != nil && m.lease == lease {
			next.seed, next.ids = m.seed, m.ids
		} else if err := s.remember(ctx, id, next); err != nil {
			return err
		}
		asked[id].memory.Store(next)
	}
	return nil
}

// exhausted returns those of the sales whose gates are open, have no units left, and have an empty stream. Such a gate admits
// nothing before units come back. Without gates, it returns all the sales.
func (s *SoldOut) exhausted(ctx context.Context, saleIDs []string) (ids []string, err error) {
	if s.Gate == nil || len(saleIDs) == 0 {
		return saleIDs, nil
	}
	var gates []model.GateRef
	for _, id := range saleIDs {
		if offer := s.Catalog.InMemory(id); offer != nil {
			gates = append(gates, offer.GateRef())
		}
	}
	states, err := s.Gate.Peek(ctx, gates...)
	if err != nil {
		return nil, err
	}
	for i, state := range states {
		if state.Open && state.Left == 0 && state.Stream == 0 {
			ids = append(ids, gates[i].SaleID)
		}
	}
	return ids, nil
}

// remember reads a sale's known ids into m. Call it after m's lease was given: while the database gives equal leases, no id is
// added.
func (s *SoldOut) remember(ctx context.Context, saleID string, m *soldOutMemory) error {
	m.seed, m.ids = maphash.MakeSeed(), map[uint64]struct{}{}
	for ids, err := range s.Store.KnownIDs(ctx, saleID) {
		if err != nil {
			return err
		}
		for _, id := range ids {
			m.ids[maphash.String(m.seed, id)] = struct{}{}
		}
		if len(m.ids) > mostRemembered {
			m.ids = nil
			return nil
		}
	}
	return nil
}
