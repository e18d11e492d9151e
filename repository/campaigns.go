package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// CreateCampaign stores a campaign and its sales, of which there must be at least one. If the first sale has a line,
// CreateCampaign also stores the sale to which the campaign's line belongs, see Sale.LineID.
func (s *Store) CreateCampaign(ctx context.Context, campaign model.Campaign, sales []model.NewSale, actor string) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		err := tx.Exec("INSERT INTO campaigns (id, title, description, image_url, limit_per_user, created_at_ms) VALUES (?, ?, ?, ?, ?, "+s.nowMillis()+")",
			campaign.ID, campaign.Title, campaign.Description, campaign.ImageURL, campaign.LimitPerUser).Error
		if err != nil {
			return err
		}
		units := int64(0)
		for i, sale := range sales {
			sale.Campaign, sale.Place = campaign, i
			if err := s.createSale(tx, sale.Sale, sale.Quota, actor); err != nil {
				return err
			}
			units += sale.Quota
		}
		if line := sales[0].Sale; line.HasLine() {
			line.ID, line.Code, line.Campaign, line.Variant = campaign.ID, campaign.ID[:len(line.Code)], campaign, ""
			line.Title, line.LimitPerUser = campaign.Title, campaign.LimitPerUser
			if err := s.createSale(tx, line, units, actor); err != nil {
				return err
			}
		}
		detail := fmt.Sprintf("title %s; limit_per_user %d; %d sales", excerpt(campaign.Title), campaign.LimitPerUser, len(sales))
		return s.run(tx, s.logging(actor, "create", campaign.ID, detail))
	})
	return wrap("create campaign", err)
}

// AddToCampaign stores one more sale of a campaign, behind the others. The function "build" makes it from the others and the time
// of the database's clock. The verdict is Accepted; NotFound if there is no such campaign; the refusal of "build"; or TooMany if
// the campaign has model.MaxVariants sales already.
func (s *Store) AddToCampaign(
	ctx context.Context, campaignID, actor string, build func(others []model.Offer, now time.Time) (model.NewSale, model.Verdict),
) (verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		ids, err := column[string](tx, "lock a campaign", "SELECT id FROM campaigns WHERE id = ?"+s.forUpdate(), campaignID)
		if err != nil || len(ids) == 0 {
			return model.NotFound, err
		}
		others, now, err := s.offers(tx, salesOfCampaign, campaignID)
		if err != nil {
			return "", err
		}
		sale, verdict := build(others, now)
		if verdict != model.Accepted {
			return verdict, nil
		}
		if sale.Place = len(others); sale.Place >= model.MaxVariants {
			return model.TooMany, nil
		}
		if err := s.createSale(tx, sale.Sale, sale.Quota, actor); err != nil {
			return "", err
		}
		return model.Accepted, s.run(tx, givingToLine(campaignID, sale.Quota),
			s.logging(actor, "add_variant", campaignID, fmt.Sprintf("%s: quota %d", excerpt(sale.Variant), sale.Quota)))
	})
	return verdict, wrap("add a sale to campaign "+campaignID, err)
}

// salesOfCampaign is the SQL after WHERE for the sales of a campaign that are for buyers, in their order.
const salesOfCampaign = "sales.campaign_id = ? AND " + forBuyers + " ORDER BY place"

// ChangeCampaign applies a change to a campaign, to its sales and to the sale that has their line. A refusal changes nothing. The
// verdict is Accepted; NotFound; the refusal of change.Edit or change.EditSale; or one of changeLine.
func (s *Store) ChangeCampaign(ctx context.Context, change model.CampaignChange) (verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		if _, _, err := s.lockLine(tx, change.CampaignID); err != nil { // the line before the stock, as in ChangeSale
			return "", err
		}
		campaign, ok, err := one(scan(tx, "lock a campaign", func(c *model.Campaign) []any {
			return []any{&c.ID, &c.Title, &c.Description, &c.ImageURL, &c.LimitPerUser}
		}, "SELECT id, title, description, image_url, limit_per_user FROM campaigns WHERE id = ?"+s.forUpdate(), change.CampaignID))
		if err != nil || !ok {
			return model.NotFound, err
		}
		if verdict := change.Edit(&campaign); verdict != model.Accepted {
			return verdict, nil
		}
		err = tx.Exec("UPDATE campaigns SET title = ?, description = ?, image_url = ?, limit_per_user = ? WHERE id = ?",
			campaign.Title, campaign.Description, campaign.ImageURL, campaign.LimitPerUser, campaign.ID).Error
		if err != nil {
			return "", err
		}
		sales, err := column[string](tx, "read its sales", "SELECT id FROM sales WHERE campaign_id = ? ORDER BY id = campaign_id, id", campaign.ID)
		if err != nil {
			return "", err
		}
		for _, id := range sales { // the sale that has the line comes last, see givingToLine
			_, verdict, err := s.changeSale(tx, campaign.ID, model.SaleChange{SaleID: id, Actor: change.Actor, Action: change.Action, Edit: change.EditSale})
			if err != nil || verdict != model.Accepted {
				return verdict, err
			}
		}
		detail := fmt.Sprintf("title %s; limit_per_user %d", excerpt(campaign.Title), campaign.LimitPerUser)
		return model.Accepted, s.run(tx, s.logging(change.Actor, change.Action, campaign.ID, detail))
	})
	return verdict, wrap("change campaign "+change.CampaignID, err)
}

// CampaignSales reads the sales of a campaign that are for buyers, in their order. It finds none if there is no such campaign.
func (s *Store) CampaignSales(ctx context.Context, campaignID string) ([]model.Offer, error) {
	list, _, err := s.offers(s.read.WithContext(ctx), salesOfCampaign, campaignID)
	return list, err
}
