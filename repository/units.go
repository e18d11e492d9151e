package repository

import (
	"cmp"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// userUnits are units of one user in one sale, or in a campaign, whose id is then in the field sale.
type userUnits struct {
	sale, user string
	n          int
}

type saleUnits struct {
	sale string
	n    int64
}

// bySale adds up the units of each sale. units must come from byUser, so that the sales are in the order of locking.
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

// byUser sorts a list in place by sale and user, the order of locking, and adds up the units of a user in the same sale.
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

func idsOfSales(sales []saleUnits) []string {
	return each(sales, func(u saleUnits) string { return u.sale })
}

// addUnits adds units, which must come from byUser, to the users' rows in buyers. It locks the rows, even if it adds 0 units.
func (s *Store) addUnits(tx *gorm.DB, units []userUnits) error {
	_, err := s.execute(tx, s.adding(units)...)
	return wrap("count buyers' units", err)
}

// adding returns the statements of addUnits. On MySQL it is one statement; the number of affected rows counts an inserted row as
// 1 and a changed row as 2.
func (s *Store) adding(units []userUnits) []statement {
	values := make([]any, 0, 3*len(units))
	for _, u := range units {
		values = append(values, u.sale, u.user, u.n)
	}
	return s.inserting("buyers (sale_id, user_id, units)", places(3), values, s.dialect(
		" ON DUPLICATE KEY UPDATE units = units + VALUES(units)",
		" ON CONFLICT (sale_id, user_id) DO UPDATE SET units = units + excluded.units"))
}

// inCampaigns returns the units and, for sales of a campaign, the same units once more for the campaign, which has rows of its
// own in the table buyers. The result has the order of byUser if units has it.
func inCampaigns(units []userUnits, campaigns map[string]string) []userUnits {
	if len(campaigns) == 0 {
		return units
	}
	all := slices.Clone(units)
	for _, u := range units {
		if id := campaigns[u.sale]; id != "" {
			all = append(all, userUnits{id, u.user, u.n})
		}
	}
	return byUser(all)
}

// campaignsOf returns, by sale, the campaigns of those sales that have one. A sale's campaign never changes, so it is cached.
func (s *Store) campaignsOf(db *gorm.DB, saleIDs ...string) (campaigns map[string]string, err error) {
	campaigns = map[string]string{}
	var unknown []string
	for _, id := range saleIDs {
		if campaign, known := s.campaigns.Load(id); !known {
			unknown = append(unknown, id)
		} else if campaign != "" {
			campaigns[id] = campaign.(string)
		}
	}
	if len(unknown) == 0 {
		return campaigns, nil
	}
	var rows []struct{ ID, Campaign string }
	err = db.Raw("SELECT id, COALESCE(campaign_id, '') AS campaign FROM sales WHERE id IN ?", unknown).Scan(&rows).Error
	for _, r := range rows {
		if s.campaigns.Store(r.ID, r.Campaign); r.Campaign != "" {
			campaigns[r.ID] = r.Campaign
		}
	}
	return campaigns, wrap("read the campaigns of sales", err)
}
