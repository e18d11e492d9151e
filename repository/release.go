package repository

import (
	"fmt"
	"strings"

	"gorm.io/gorm"

	"flashsale/model"
)

// release moves locked orders of one sale from the status "from" to the status that all orders in "list" have. It returns their
// units to the stock, subtracts them from the users' units, and records the events and the changes for the gate. It locks rows in
// the order orders, buyers, stock. Its errors include errRefusing, see giveBack.
func (s *Store) release(tx *gorm.DB, saleID string, from model.OrderStatus, list ...model.Order) error {
	ids, about := make([]string, len(list)), make([]subject, len(list))
	units, changes := make([]userUnits, len(list)), make([]model.GateChange, len(list))
	for i, o := range list {
		if !from.CanBecome(o.Status) {
			return fmt.Errorf("release orders: order %s cannot go from %s to %s", o.ID, from, o.Status)
		}
		ids[i], about[i] = o.ID, subject{o.ID, saleID}
		units[i] = userUnits{saleID, o.UserID, o.Quantity}
		changes[i] = model.GateChange{OrderID: o.ID, Units: int64(o.Quantity)}
	}
	released, err := exec(tx, "release orders", "UPDATE orders SET status = ?, ended_at_ms = "+s.nowMillis()+" WHERE id IN ? AND status = ?",
		string(list[0].Status), ids, string(from))
	if err == nil && released != int64(len(ids)) {
		err = fmt.Errorf("release orders: %d of %d were %s", released, len(ids), from)
	}
	if err != nil {
		return err
	}
	campaigns, err := s.campaignsOf(tx, saleID)
	if err != nil {
		return err
	}
	if err := s.returnUnits(tx, inCampaigns(byUser(units), campaigns)); err != nil {
		return err
	}
	leaves := "held = held - ?"
	if from == model.OrderPaid {
		leaves = "paid = paid - ?"
	}
	if err := s.giveBack(tx, saleID, campaigns[saleID], leaves, changes...); err != nil {
		return err
	}
	event := model.EventType("order." + list[0].Status) // named after the new status
	return wrap("record events", s.run(tx, s.recording(event, about...)))
}

// giveBack makes the units of the changes available or, if the sale is in line, gives them to its line. It records the changes
// for the gate. "leaves" is the part of an UPDATE of stock that takes the units from where they are, or adds them to the quota;
// its only argument is their number. giveBack fails with errRefusing if mayReturn is false.
func (s *Store) giveBack(tx *gorm.DB, saleID, campaignID, leaves string, changes ...model.GateChange) error {
	units := int64(0)
	for _, c := range changes {
		units += c.Units
	}
	stock, _, err := s.lockStock(tx, saleID)
	if err != nil {
		return err
	}
	gets := "available"
	switch {
	case stock.Lined == model.InLine:
		gets = "reserved"
	case stock.Lined == model.LinedAtSoldOut && stock.Available == 0: // the first units that come back begin the waiting list
		gets, stock.Lined = "reserved", model.InLine
	}
	changed, err := exec(tx, "give units back", "UPDATE stock SET "+gets+" = "+gets+" + ?, "+leaves+", lined = ?, "+nextGateVersion+
		" WHERE sale_id = ?"+s.mayReturn(), units, units, int(stock.Lined), saleID)
	if err == nil && changed == 0 {
		err = errRefusing{saleID}
	}
	if err != nil {
		return err
	}
	stock.Version++
	toLine := []statement{givingToLine(campaignID, units)}
	return wrap("give units back", s.run(tx, append(toLine, s.telling(saleID, stock, changes)...)...))
}

// givingToLine returns the statement that gives units of a campaign's sale to the campaign's line, if there is one. The sale's
// stock row must be locked before the line's.
func givingToLine(campaignID string, units int64) statement {
	if campaignID == "" {
		return statement{}
	}
	return do("UPDATE stock SET quota = quota + ?, reserved = reserved + ?, version = version + 1 WHERE sale_id = ?", units, units, campaignID)
}

// returnUnits subtracts units, which must be sorted as by byUser, from the users' rows in buyers.
func (s *Store) returnUnits(tx *gorm.DB, units []userUnits) error {
	for len(units) > 0 {
		sale, args, users := units[0].sale, []any(nil), []string(nil)
		for ; len(units) > 0 && units[0].sale == sale; units = units[1:] {
			args, users = append(args, units[0].user, units[0].n), append(users, units[0].user)
		}
		err := tx.Exec("UPDATE buyers SET units = units - CASE user_id"+strings.Repeat(" WHEN ? THEN ?", len(users))+" END WHERE sale_id = ? AND user_id IN ?",
			append(args, sale, users)...).Error
		if err != nil {
			return wrap("return buyers' units", err)
		}
	}
	return nil
}
