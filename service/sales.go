package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"flashsale/model"
)

// Bounds of what an operator may enter. Money stays exact in JSON's doubles, counts in 32 bits.
const (
	maxTitle       = 200
	maxDescription = 2000
	maxImageURL    = 500
	maxPriceCents  = 100_000_000_00
	maxQuota       = 100_000_000
	maxLimit       = 10_000
	maxPaySeconds  = 7 * 24 * 3600
	codeLength     = 8
)

var currency = regexp.MustCompile(`^[A-Z]{3}$`)

// SaleStore is what the database does with sales.
type SaleStore interface {
	CreateSale(ctx context.Context, sale model.Sale, quota int64, actor string) error
	ChangeSale(ctx context.Context, change model.SaleChange) (model.Offer, model.Verdict, error)
	SaleByCode(ctx context.Context, code string) (string, error)
}

// SaleGate is what an operator's change brings to Redis.
type SaleGate interface {
	Releaser
	Configure(ctx context.Context, sale model.Sale) error
	Announce(ctx context.Context, saleID string) error
}

// Sales is the operator's desk.
type Sales struct {
	Store   SaleStore
	Gate    SaleGate
	Gates   *Gates
	Catalog *Catalog
	Log     *slog.Logger
}

// Invalid says which field of an operator's input is wrong; it is empty when all is right.
type Invalid string

// Create starts a sale under a new id, preheats its gate and tells every instance. invalid names a wrong field.
func (s *Sales) Create(ctx context.Context, sale model.Sale, quota int64, actor string) (offer model.Offer, invalid Invalid, err error) {
	switch {
	case quota < 1 || quota > maxQuota:
		return offer, Invalid(fmt.Sprintf("quota must be 1 to %d", maxQuota)), nil
	case !sale.EndsAt.After(s.Catalog.Now()):
		return offer, "ends_at must be in the future", nil
	}
	if invalid := validate(sale); invalid != "" {
		return offer, invalid, nil
	}
	sale.ID, sale.Code = model.NewSaleID(), rand.Text()[:codeLength]
	sale.Status, sale.Revision = model.SaleLive, 1
	if err := s.Store.CreateSale(ctx, sale, quota, actor); err != nil {
		return offer, "", err
	}
	if err := s.Gates.Preheat(ctx, sale.ID); err != nil {
		s.Log.Warn("a new sale has no gate yet; the controller will install it", "sale", sale.ID, "error", err)
	}
	s.tell(ctx, sale.ID)
	offer, ok, err := s.Catalog.Sale(ctx, sale.ID)
	if err == nil && !ok {
		err = fmt.Errorf("sale %s is gone", sale.ID)
	}
	return offer, "", err
}

// SalePatch is what an operator changes; nil leaves a field as it is.
type SalePatch struct {
	Title, Description, ImageURL *string
	StartsAt, EndsAt             *time.Time
	LimitPerUser                 *int
	AddQuota                     int64
}

// Patch changes a sale. NotFound; BadRequest with the wrong field named.
func (s *Sales) Patch(ctx context.Context, id string, p SalePatch, actor string) (offer model.Offer, verdict model.Verdict, invalid Invalid, err error) {
	if p.AddQuota < 0 || p.AddQuota > maxQuota {
		return offer, model.BadRequest, Invalid(fmt.Sprintf("add_quota must be 0 to %d", maxQuota)), nil
	}
	edit := func(sale *model.Sale) model.Verdict {
		set(&sale.Title, p.Title)
		set(&sale.Description, p.Description)
		set(&sale.ImageURL, p.ImageURL)
		set(&sale.StartsAt, p.StartsAt)
		set(&sale.EndsAt, p.EndsAt)
		set(&sale.LimitPerUser, p.LimitPerUser)
		if invalid = validate(*sale); invalid != "" {
			return model.BadRequest
		}
		return model.Accepted
	}
	offer, verdict, err = s.change(ctx, model.SaleChange{SaleID: id, Actor: actor, Action: "patch", Edit: edit, AddQuota: p.AddQuota})
	return offer, verdict, invalid, err
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// SetStatus pauses, resumes or closes a sale. NotFound; Ended: a closed sale stays closed.
func (s *Sales) SetStatus(ctx context.Context, id string, status model.SaleStatus, action, actor string) (model.Offer, model.Verdict, error) {
	return s.change(ctx, model.SaleChange{SaleID: id, Actor: actor, Action: action, Edit: func(sale *model.Sale) model.Verdict {
		if sale.Status == model.SaleClosed && status != model.SaleClosed {
			return model.Ended
		}
		sale.Status = status
		return model.Accepted
	}})
}

func (s *Sales) change(ctx context.Context, c model.SaleChange) (model.Offer, model.Verdict, error) {
	if known, err := s.Catalog.Known(ctx, c.SaleID); err != nil || !known {
		return model.Offer{}, model.NotFound, err
	}
	offer, verdict, err := s.Store.ChangeSale(ctx, c)
	if err != nil || verdict != model.Accepted {
		return offer, verdict, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.Gate.Configure(ctx, offer.Sale); err != nil {
		s.Log.Warn("the gate did not hear of a change", "sale", c.SaleID, "error", err)
		s.Gates.ReplaceGate(c.SaleID, "missed a change")
	}
	if c.AddQuota > 0 {
		added := model.Release{OrderID: "quota", Units: int(c.AddQuota), Version: offer.Stock.Version}
		releaseAtGate(ctx, s.Gate, s.Catalog, s.Log, c.SaleID, []model.Release{added})
	}
	s.tell(ctx, c.SaleID)
	return offer, verdict, nil
}

// tell brings this instance's memory up to date at once, and every other's.
func (s *Sales) tell(ctx context.Context, saleID string) {
	if err := s.Catalog.Refresh(ctx); err != nil {
		s.Log.Warn("refresh after a change", "sale", saleID, "error", err)
	}
	if err := s.Gate.Announce(ctx, saleID); err != nil {
		s.Log.Warn("other instances will find a change by polling", "sale", saleID, "error", err)
	}
}

// ByCode gives the id of the sale behind a short link; empty if there is none.
func (s *Sales) ByCode(ctx context.Context, code string) (string, error) {
	if known, err := s.Catalog.Known(ctx, code); err != nil || !known {
		return "", err
	}
	return s.Store.SaleByCode(ctx, code)
}

// validate names the first field of a sale that is wrong.
func validate(sale model.Sale) Invalid {
	switch {
	case !text(sale.Title, maxTitle) || strings.TrimSpace(sale.Title) == "":
		return Invalid(fmt.Sprintf("title must be 1 to %d printable characters", maxTitle))
	case !text(strings.NewReplacer("\n", "", "\t", "").Replace(sale.Description), maxDescription):
		return Invalid(fmt.Sprintf("description must be at most %d printable characters", maxDescription))
	case !link(sale.ImageURL):
		return Invalid(fmt.Sprintf("image_url must be empty, a path or an http(s) URL of at most %d characters", maxImageURL))
	case sale.PriceCents < 0 || sale.PriceCents > maxPriceCents:
		return Invalid(fmt.Sprintf("price_cents must be 0 to %d", maxPriceCents))
	case sale.OriginalPriceCents < 0 || sale.OriginalPriceCents > maxPriceCents:
		return Invalid(fmt.Sprintf("original_price_cents must be 0 to %d", maxPriceCents))
	case !currency.MatchString(sale.Currency):
		return "currency must be three capital letters"
	case sale.LimitPerUser < 1 || sale.LimitPerUser > maxLimit:
		return Invalid(fmt.Sprintf("limit_per_user must be 1 to %d", maxLimit))
	case sale.PayTimeoutSeconds < 1 || sale.PayTimeoutSeconds > maxPaySeconds:
		return Invalid(fmt.Sprintf("pay_timeout_seconds must be 1 to %d", maxPaySeconds))
	case sale.StartsAt.Year() < 2000 || sale.EndsAt.Year() > 2200:
		return "starts_at and ends_at must lie between the years 2000 and 2200"
	case !sale.EndsAt.Truncate(time.Millisecond).After(sale.StartsAt.Truncate(time.Millisecond)):
		return "ends_at must be after starts_at"
	}
	return ""
}

// text reports whether s is printable and has at most limit characters.
func text(s string, limit int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= limit && !strings.ContainsFunc(s, unicode.IsControl)
}

func link(s string) bool {
	if s == "" {
		return true
	}
	u, err := url.Parse(s)
	if err != nil || !text(s, maxImageURL) {
		return false
	}
	return u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") || u.Scheme == "" && u.Host == "" && strings.HasPrefix(s, "/")
}
