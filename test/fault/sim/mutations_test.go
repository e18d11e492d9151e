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
	"flashsale/service"
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
		noCondition: {"the stock of", 42}, noID: {"two orders under one key", 12},
		noLimit: {"and may have", 123}, beforeCommit: {"was told that there is an order", 0},
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
		return hasty{whole, i.waiters}
	default:
		return careless{whole, m}
	}
}

// hasty confirms attempts to the waiting buyers before anything is written.
type hasty struct {
	storeView
	waiters *service.Waiters
}

func (h hasty) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	for _, e := range entries {
		h.waiters.Wake(e.ID, model.Outcome{Verdict: model.Accepted, Order: &model.Order{
			ID: e.ID, SaleID: sale, UserID: e.UserID, Quantity: e.Quantity, Status: model.OrderPending, RequestHash: e.RequestHash,
		}})
	}
	return h.storeView.Settle(ctx, sale, entries)
}

// careless settles as the database does, except for the condition that it has lost. Its schema lacks the keys and
// constraints that would prevent the error.
type careless struct {
	storeView
	lost mutation
}

func (c careless) Settle(ctx context.Context, sale string, entries []model.Entry) ([]model.Outcome, error) {
	settle := c.writes("settle carelessly %s", c.s.entries(entries))
	return ask(ctx, settle, func(ctx context.Context) (outcomes []model.Outcome, err error) {
		tx, err := c.s.careless.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }()
		for _, e := range entries {
			outcome, err := c.settle(ctx, tx, e)
			if err != nil {
				return nil, err
			}
			outcomes = append(outcomes, outcome)
		}
		return outcomes, tx.Commit()
	})
}

func (c careless) settle(ctx context.Context, tx *sql.Tx, e model.Entry) (model.Outcome, error) {
	order := model.Order{
		ID: e.ID, SaleID: e.SaleID, UserID: e.UserID, Quantity: e.Quantity, Status: model.OrderPending,
		IdempotencyKey: e.IdempotencyKey, RequestHash: e.RequestHash,
	}
	accepted := model.Outcome{Verdict: model.Accepted, Order: &order}
	var known, held, available int
	err := tx.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM orders WHERE id = ?),
		COALESCE((SELECT units FROM buyers WHERE sale_id = ? AND user_id = ?), 0), (SELECT available FROM stock WHERE sale_id = ?)`,
		e.ID, e.SaleID, e.UserID, e.SaleID).Scan(&known, &held, &available)
	if err != nil {
		return model.Outcome{}, err
	}
	switch {
	case known > 0 && c.lost != noID:
		accepted.Repeated = true
		return accepted, nil
	case held+e.Quantity > c.s.plan.limit && c.lost != noLimit:
		return model.Outcome{Verdict: model.LimitReached}, nil
	case available < e.Quantity && c.lost != noCondition:
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	const now = "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
	var failed error
	execute := func(statement string, args ...any) {
		_, err := tx.ExecContext(ctx, statement, args...)
		failed = errors.Join(failed, err)
	}
	execute(`INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch, idempotency_key, request_hash,
		created_at_ms, expires_at_ms) VALUES (?, ?, ?, ?, 100, 'EUR', 'pending', 'stream', ?, ?, ?, `+now+`, `+now+` + ?)`,
		e.ID, e.SaleID, e.UserID, e.Quantity, e.Epoch, e.IdempotencyKey, e.RequestHash, payTimeout.Milliseconds())
	execute(`INSERT INTO buyers (sale_id, user_id, units) VALUES (?, ?, ?)
		ON CONFLICT (sale_id, user_id) DO UPDATE SET units = units + excluded.units`, e.SaleID, e.UserID, e.Quantity)
	execute(`UPDATE stock SET available = available - ?, held = held + ?, version = version + 1 WHERE sale_id = ?`,
		e.Quantity, e.Quantity, e.SaleID)
	return accepted, failed
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
