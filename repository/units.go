package repository

import (
	"cmp"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// userUnits are units of one user on one sale.
type userUnits struct {
	sale, user string
	n          int
}

// saleUnits are units of one sale.
type saleUnits struct {
	sale string
	n    int64
}

// bySale adds up the units of each sale. units must come from byUser, so the sales are in the order of locking.
func bySale(units []userUnits) (sums []saleUnits) {
	for _, u := range units {
		if last := len(sums) - 1; last >= 0 && sums[last].sale == u.sale {
			sums[last].n += int64(u.n)
			continue
		}
		sums = append(sums, saleUnits{u.sale, int64(u.n)})
	}
	return sums
}

// byUser sorts a list by sale and user, which is the order of locking, and adds up the units of the same user.
func byUser(list []userUnits) []userUnits {
	slices.SortFunc(list, func(a, b userUnits) int {
		return cmp.Or(strings.Compare(a.sale, b.sale), strings.Compare(a.user, b.user))
	})
	sums := list[:0]
	for _, u := range list {
		if last := len(sums) - 1; last >= 0 && sums[last].sale == u.sale && sums[last].user == u.user {
			sums[last].n += u.n
			continue
		}
		sums = append(sums, u)
	}
	return sums
}

func usersOf(units []userUnits) []string {
	users := make([]string, len(units))
	for i, u := range units {
		users[i] = u.user
	}
	return users
}

// addUnits adds units to the users' rows in buyers and locks the rows, even where it adds 0 units. units must come from
// byUser.
func (s *Store) addUnits(tx *gorm.DB, units []userUnits) error {
	_, err := s.execute(tx, s.adding(units)...)
	return wrap("count buyers' units", err)
}

// adding returns the statements of addUnits. On MySQL there is one, which counts an inserted row as 1 and a changed row
// as 2.
func (s *Store) adding(units []userUnits) []statement {
	values := make([]any, 0, 3*len(units))
	for _, u := range units {
		values = append(values, u.sale, u.user, u.n)
	}
	onConflict := " ON DUPLICATE KEY UPDATE units = units + VALUES(units)"
	if s.sqlite {
		onConflict = " ON CONFLICT (sale_id, user_id) DO UPDATE SET units = units + excluded.units"
	}
	return s.inserting("buyers (sale_id, user_id, units)", 3, values, onConflict)
}

func (s *Store) returnUnits(tx *gorm.DB, saleID string, units []userUnits) error {
	if len(units) == 0 {
		return nil
	}
	args := make([]any, 0, 2*len(units)+2)
	for _, u := range units {
		args = append(args, u.user, u.n)
	}
	cases := strings.Repeat(" WHEN ? THEN ?", len(units))
	err := tx.Exec("UPDATE buyers SET units = units - CASE user_id"+cases+" END WHERE sale_id = ? AND user_id IN ?",
		append(args, saleID, usersOf(units))...).Error
	return wrap("return buyers' units", err)
}
