package sim

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/worker"
)

// mutation is a safeguard that is removed from the ledger, to test whether the checks find it.
type mutation string

const (
	sound        mutation = ""
	noCondition  mutation = "it settles without the stock's condition"
	noID         mutation = "it doesn't look whether an id is known"
	noLimit      mutation = "it doesn't look at the limit"
	beforeCommit mutation = "it says yes before the commit"
)

// mostSeeds is the number of worlds within which a mutation must be found. They begin with the world that showed it last.
const mostSeeds = 300

// TestMutations shows that the checks find a ledger without one of its conditions, by the expected symptom, and in a world
// in which a sound ledger is right.
func TestMutations(t *testing.T) {
	for m, look := range map[mutation]struct {
		symptom string
		first   uint64
	}{
		noCondition: {"the stock of", 42}, noID: {"two orders under one key", 52},
		noLimit: {"and may have", 128}, beforeCommit: {"was told that there is an order", 0},
	} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			for n := range uint64(mostSeeds) {
				seed := (look.first + n) % mostSeeds
				_, err := simulate(t, seed, m)
				if err == nil || !strings.Contains(err.Error(), look.symptom) {
					continue
				}
				if _, sick := simulate(t, seed, sound); sick == nil {
					t.Logf("found by seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("no world of %d shows it", mostSeeds)
		})
	}
}

// ledger returns the database of an instance's settler.
func (m mutation) ledger(i *instance) worker.Ledger {
	whole := i.database("settler")
	switch m {
	case sound:
		return whole
	case beforeCommit:
		return hasty{whole}
	default:
		return careless{whole, m}
	}
}

// hasty confirms attempts to the waiting buyers before anything is written.
type hasty struct {
	storeView
}

func (h hasty) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	for _, e := range entries {
		if e.Waiter != nil {
			e.Waiter.Tell(model.Outcome{Verdict: model.Accepted, Order: &model.Order{
				ID: e.ID, SaleID: sale, UserID: e.UserID, Quantity: e.Quantity, Status: model.OrderPending,
			}}, nil)
		}
	}
	return h.storeView.Settle(ctx, sale, entries)
}

// SettleSales fails, so that each sale is settled by itself.
func (hasty) SettleSales(context.Context, []model.Entry) ([]model.Outcome, error) {
	return nil, model.ErrApart
}

// careless settles as the database does, but for the time of a settle the rows look as if its condition held. Its schema
// lacks the keys and constraints that would prevent the error.
type careless struct {
	storeView
	lost mutation
}

// pretences are the statements before and after a settle without a condition.
var pretences = map[mutation][2]string{
	noCondition: {
		"UPDATE stock SET quota = quota + 1000, available = available + 1000",
		"UPDATE stock SET quota = quota - 1000, available = available - 1000",
	},
	noID:    {"UPDATE orders SET id = id || '!'", "UPDATE orders SET id = RTRIM(id, '!')"},
	noLimit: {"UPDATE sales SET limit_per_user = limit_per_user + 1000", "UPDATE sales SET limit_per_user = limit_per_user - 1000"},
}

func (c careless) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	return ask(ctx, c.writes("settle carelessly %v", entries), func() ([]model.Outcome, error) {
		pretend := pretences[c.lost]
		_, err := c.s.careless.ExecContext(free(ctx), pretend[0])
		c.s.must(err)
		outcomes, errSettle := c.Store.Settle(free(ctx), sale, entries)
		_, err = c.s.careless.ExecContext(free(ctx), pretend[1])
		c.s.must(err)
		return outcomes, errSettle
	})
}

// SettleSales fails, so that each sale is settled by itself.
func (careless) SettleSales(context.Context, []model.Entry) ([]model.Outcome, error) {
	return nil, model.ErrApart
}

// templates are databases with the schema and no rows, made once.
var templates sync.Map // of func() ([]byte, error), by mutation

// template returns the bytes of a database with the schema for the mutation.
func (m mutation) template(t *testing.T) []byte {
	t.Helper()
	made, _ := templates.LoadOrStore(m, sync.OnceValues(func() ([]byte, error) { return m.schema(t.TempDir()) }))
	bytes, err := made.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func (m mutation) schema(folder string) ([]byte, error) {
	ctx, path := context.Background(), filepath.Join(folder, "template.db")
	db, err := repository.Open(ctx, "sqlite:"+path, 1)
	if err != nil {
		return nil, err
	}
	err = errors.Join(db.MigrateUp(ctx), db.Close())
	if bare := map[mutation]string{noCondition: "stock", noID: "orders"}[m]; bare != "" {
		err = errors.Join(err, strip(ctx, path, bare))
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// strip removes all keys and constraints from a table.
func strip(ctx context.Context, path, table string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	const statements = "CREATE TABLE bare AS SELECT * FROM it; DROP TABLE it; ALTER TABLE bare RENAME TO it"
	_, err = db.ExecContext(ctx, strings.ReplaceAll(statements, "it", table))
	return errors.Join(err, db.Close())
}
