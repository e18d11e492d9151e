package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// A database that was restored from a backup knows less than the gates in Redis, whose epochs may be ahead of its own.
// Emptied or not, Redis sells exactly what the database has left, in the end also to those whose orders are gone.
func TestRestoredDatabase(t *testing.T) {
	t.Parallel()
	const quota, before, after = 60, 10, 20
	for name, tc := range map[string]struct {
		emptied bool // as the operators' handbook says
		newer   bool // the gate was replaced after the backup
	}{
		"Redis is emptied":               {true, false},
		"Redis is not":                   {false, false},
		"Redis is not, of a newer epoch": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := kit.Redis(t)
			file := filepath.Join(t.TempDir(), "shop.db")
			open := func() *server {
				return start(t, func(s *config.Settings) { s.Database, s.Redis = "sqlite:"+file, redis.URL() })
			}
			s := open()
			saleID := s.createSale(fields{"quota": quota, "limit_per_user": 1}).ID
			buy := func(prefix string, n int) {
				t.Helper()
				for i := range n {
					s.buyer(fmt.Sprint(prefix, i)).purchase(saleID, 1).want(http.StatusCreated)
				}
			}
			buy("kept-", before)
			s.settled(saleID)
			s.stop()
			backup, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if wal, err := os.Stat(file + "-wal"); err == nil && wal.Size() > 0 {
				t.Fatal("the backup is not whole")
			}

			s = open()
			if tc.newer {
				epoch := s.audit(saleID).Gate.Epoch
				s.app.gates.ReplaceGate(saleID, epoch, "to be newer")
				s.eventually("the gate is replaced", func() bool { return s.audit(saleID).Gate.Epoch > epoch })
			}
			buy("gone-", after)
			s.settled(saleID)
			s.stop()
			if err := os.WriteFile(file, backup, 0o600); err != nil {
				t.Fatal(err)
			}
			if tc.emptied {
				redis.Restart()
			}

			s = open()
			s.eventually("gate and database agree", func() bool {
				a := s.audit(saleID)
				return a.OK && a.Gate.Epoch > 0 && a.Gate.Left == quota-before
			})
			s.buyer("kept-0").purchase(saleID, 1).refused(http.StatusConflict, "limit_reached")
			buy("gone-", after)
			buy("new-", quota-before-after)
			s.buyer("late").purchase(saleID, 1).refused(http.StatusConflict, "sold_out")
			if a := s.balanced(saleID); a.Held != quota {
				t.Errorf("%+v", a)
			}
		})
	}
}
