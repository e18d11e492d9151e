package app_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"flashsale/internal/config"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// A database that was restored from a backup knows less than the gates in Redis, whose epochs may be ahead of its own.
// Whether Redis is emptied or not, it sells exactly what the database has left, also to buyers whose orders are gone.
func TestRestoredDatabase(t *testing.T) {
	t.Parallel()
	const quota, before, after = 60, 10, 20
	for name, tc := range map[string]struct {
		emptied bool // Redis is emptied, as docs/oncall.md says
		newer   bool // the gate was replaced after the backup
	}{"Redis is emptied": {true, false}, "Redis is kept": {false, false}, "Redis is kept, with a newer epoch": {false, true}} {
		t.Run(name, func(t *testing.T) {
			redis, database := kit.Redis(t), kit.SQLite(t)
			file := strings.TrimPrefix(database, "sqlite:")
			open := func() *server {
				return start(t, func(s *config.Settings) { s.Database, s.Redis = database, redis.URL() })
			}
			s := open()
			saleID := s.createSale(fields{"quota": quota, "limit_per_user": 1}).ID
			buy := func(prefix string, n int) {
				t.Helper()
				for i := range n {
					s.buyer(fmt.Sprint(prefix, i)).purchase(saleID, 1).want(201)
				}
				s.balanced(saleID)
			}
			buy("kept-", before)
			stop := func() {
				t.Helper()
				s.stop()
				if log, err := os.Stat(file + "-wal"); err == nil && log.Size() > 0 {
					t.Fatal("the file lacks what is in the log beside it")
				}
			}
			stop()
			backup, err := os.ReadFile(file)
			check.NoError(t, err)

			s = open()
			if tc.newer {
				epoch := s.audit(saleID).Gate.Epoch
				s.app.Gates().ReplaceGate(saleID, epoch, "for a newer epoch")
				s.eventually("the gate is replaced", func() bool { return s.audit(saleID).Gate.Epoch > epoch })
			}
			buy("gone-", after)
			stop()
			check.NoError(t, os.WriteFile(file, backup, 0o600))
			if tc.emptied {
				redis.Restart()
			}

			s = open()
			s.eventually("gate and database agree", func() bool {
				a := s.audit(saleID)
				return a.OK && a.Gate.Epoch > 0 && a.Gate.Left == quota-before
			})
			s.buyer("kept-0").purchase(saleID, 1).refused(409, "limit_reached")
			buy("gone-", after)
			buy("new-", quota-before-after)
			s.buyer("late").purchase(saleID, 1).refused(409, "sold_out")
			s.wantStock(saleID, stock{held: quota})
		})
	}
}
