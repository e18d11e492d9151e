package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"flashsale/model"
)

// Bounds of what an operator may enter. They keep an order's amount exact as a JSON double, and a sale's units within 32 bits.
const (
	maxTitle, maxDescription, maxImageURL = 200, 2000, 500 // characters
	maxPriceCents                         = 100_000_000_00
	maxQuota, maxLimit                    = 100_000_000, 10_000
	maxPaySeconds                         = 7 * 24 * 3600
	minCallSeconds, maxCallSeconds        = 5, 7 * 24 * 3600
	defaultCallSeconds                    = 2 * 60     // how long a call lasts if the operator does not say
	maxEntryWork                          = 10_000_000 // hashes
	minYear, maxYear                      = 2000, 2200
	codeLength                            = 8 // characters of a short link's code
)

// SaleStore writes sales and changes of their lines to the database, and finds sales by their short codes.
type SaleStore interface {
	CreateSale(ctx context.Context, sale model.Sale, quota int64, actor string) error
	ChangeSale(ctx context.Context, change model.SaleChange) (model.Offer, model.Verdict, error)
	SaleByCode(ctx context.Context, code string) (string, error)
	ExtendCalls(ctx context.Context, saleID string, by time.Duration, actor string) (calls int64, verdict model.Verdict, err error)
	VoidEntries(ctx context.Context, saleID string, rule model.VoidRule, actor string) (voided int64, verdict model.Verdict, err error)
}

// SaleHistory lists sales and operations, the newest first, with the cursor of the next page. It returns model.ErrBadCursor if
// the given cursor is malformed.
type SaleHistory interface {
	// Sales lists sales, without those that only have a campaign's line.
	Sales(ctx context.Context, cursor string, limit int) (list []model.Offer, next string, err error)
	// Summaries lists campaigns, and sales without a campaign.
	Summaries(ctx context.Context, f model.SummaryFilter) (list []model.Summary, next string, err error)
	// Operations lists the operations on a subject, such as a sale, a campaign or the staff.
	Operations(ctx context.Context, subject, cursor string, limit int) (list []model.AuditEntry, next string, err error)
}

// SaleGate tells Redis of a change of a sale: Configure tells the sale's gate, and Announce tells the instances.
type SaleGate interface {
	Configure(ctx context.Context, sale model.Sale) error
	Announce(ctx context.Context, saleID string) error
}

// Sales is the service of the operators: it creates, changes and lists sales.
type Sales struct {
	SaleHistory
	Store   SaleStore
	Gate    SaleGate
	Gates   *Gates
	Catalog *Catalog
	IDs     model.OrderIDs
	Takes   func(currency string) (amounts model.AmountRange, ok bool) // as Provider.Takes
	Log     *slog.Logger
}

// Repeated finds the sale that an earlier request created under sale.ID. The verdict is Accepted, NotFound, or
// IdempotencyMismatch if the sale or its quota differs from what is asked for now, perhaps because it was changed since.
func (s *Sales) Repeated(ctx context.Context, sale model.Sale, quota int64) (model.Offer, model.Verdict, error) {
	offer, ok, err := s.Catalog.Sale(ctx, sale.ID)
	switch {
	case err != nil || !ok:
		return offer, model.NotFound, err
	case quota != offer.Stock.Quota || wish(sale) != wish(offer.Sale):
		return offer, model.IdempotencyMismatch, nil
	}
	return offer, model.Accepted, nil
}

// wish returns those fields of a new sale that the operator chooses, in a form that can be compared.
func wish(sale model.Sale) model.Sale {
	sale = completed(sale)
	sale.ID, sale.Code, sale.Status, sale.Revision, sale.Started, sale.TermsAt = "", "", "", 0, false, time.Time{}
	for _, at := range []*time.Time{&sale.StartsAt, &sale.EndsAt, &sale.EntriesAt} {
		*at = time.UnixMilli(at.UnixMilli())
	}
	return sale
}

// completed sets the mode, what is shown of the stock, and in a sale with a line the seconds of a call, if the operator has not
// set them.
func completed(sale model.Sale) model.Sale {
	sale.Mode, sale.StockShown = cmp.Or(sale.Mode, model.ModeRush), cmp.Or(sale.StockShown, model.StockExact)
	if sale.HasLine() {
		sale.CallSeconds = cmp.Or(sale.CallSeconds, defaultCallSeconds)
	}
	return sale
}

// Create creates a sale under sale.ID or, if that is empty, under a new id, and preheats its gate. If a field is invalid, it
// creates nothing, and returns the first invalid field.
func (s *Sales) Create(ctx context.Context, sale model.Sale, quota int64, actor string) (offer model.Offer, invalid *Invalid, err error) {
	sale = completed(sale)
	if invalid := s.validateNew(sale, quota); invalid != nil {
		return offer, invalid, nil
	}
	sale.ID, sale.Code = cmp.Or(sale.ID, model.NewSaleID()), rand.Text()[:codeLength]
	sale.Status, sale.Revision = cmp.Or(sale.Status, model.SaleLive), 1
	if err := s.Store.CreateSale(ctx, sale, quota, actor); err != nil {
		return offer, nil, err
	}
	s.created(ctx, sale.ID)
	offer, ok, err := s.Catalog.Sale(ctx, sale.ID)
	if err == nil && !ok {
		err = fmt.Errorf("sale %s is gone", sale.ID)
	}
	return offer, nil, err
}

// created preheats the gates of new sales and tells the instances. It only logs failures.
func (s *Sales) created(ctx context.Context, saleIDs ...string) {
	for _, id := range saleIDs {
		if err := s.Gates.Preheat(ctx, id); err != nil {
			s.Log.WarnContext(ctx, "a new sale has no gate yet; the controller will install it", "sale", id, "error", err)
		}
	}
	s.tell(ctx, saleIDs...)
}

// SalePatch is what an operator changes of a sale, with the names of the API; nil leaves a field as it is.
type SalePatch struct {
	CampaignPatch
	PriceCents         *int64     `json:"price_cents"`
	OriginalPriceCents *int64     `json:"original_price_cents"`
	EntriesAt          *time.Time `json:"entries_at"`
	CallSeconds        *int       `json:"call_seconds"`
	Beacon             *bool      `json:"beacon"`
	EntryWork          *int64     `json:"entry_work"`
	WaitingList        *bool      `json:"waiting_list"`
	Quota              *int64     `json:"quota"`
	AddQuota           int64      `json:"add_quota"`
	IfQuota            *int64     `json:"if_quota"` // the quota that must hold before the change, so that a repeated request adds nothing
}

// Patch changes a sale. The verdict is Accepted; NotFound; QuotaChanged if the quota isn't IfQuota; Ended, EntriesClosed,
// Started or Entered if the sale, or its line, is too far advanced for the change; or BadRequest with the first invalid field.
func (s *Sales) Patch(ctx context.Context, id string, p SalePatch, actor string) (offer model.Offer, verdict model.Verdict, invalid *Invalid, err error) {
	most, quota := int64(maxQuota), int64(0)
	if set(&quota, p.Quota); p.Quota != nil {
		most, invalid = 0, Outside("quota", quota, 1, maxQuota) // a patch has one of the two
	}
	if invalid = cmp.Or(invalid, Outside("add_quota", p.AddQuota, 0, most)); invalid != nil {
		return offer, model.BadRequest, invalid, nil
	}
	edit := func(sale *model.Sale) model.Verdict {
		before := *sale
		p.common(sale)
		set(&sale.Title, p.Title)
		set(&sale.LimitPerUser, p.LimitPerUser)
		set(&sale.PriceCents, p.PriceCents)
		set(&sale.OriginalPriceCents, p.OriginalPriceCents)
		set(&sale.Beacon, p.Beacon)
		set(&sale.EntryWork, p.EntryWork)
		set(&sale.EntriesAt, p.EntriesAt)
		set(&sale.CallSeconds, p.CallSeconds)
		set(&sale.WaitingList, p.WaitingList)
		whole := sale.IsCampaignLine()
		ofCampaign := func(field string, given bool) *Invalid {
			return Invalid{Field: field, Reason: OfCampaign}.If(given && sale.Campaign.ID != "")
		}
		ofOneSale := func(field string, given bool) *Invalid {
			return Invalid{Field: field, Reason: OfOneSale}.If(given && whole)
		}
		if invalid = cmp.Or(
			p.badStockShown(),
			ofCampaign("title", p.Title != nil),
			ofCampaign("description", p.Description != nil && whole),
			ofCampaign("image_url", p.ImageURL != nil && whole),
			ofCampaign("starts_at", p.StartsAt != nil),
			ofCampaign("ends_at", p.EndsAt != nil),
			ofCampaign("limit_per_user", p.LimitPerUser != nil && whole),
			ofCampaign("entries_at", p.EntriesAt != nil && !whole),
			ofCampaign("call_seconds", p.CallSeconds != nil && !whole),
			ofCampaign("waiting_list", p.WaitingList != nil),
			ofCampaign("currency", p.Currency != nil),
			ofCampaign("pay_timeout_seconds", p.PayTimeoutSeconds != nil),
			ofCampaign("stock_shown", p.StockShown != nil),
			ofCampaign("beacon", p.Beacon != nil && !whole),
			ofCampaign("entry_work", p.EntryWork != nil && !whole),
			ofOneSale("price_cents", p.PriceCents != nil),
			ofOneSale("original_price_cents", p.OriginalPriceCents != nil),
			ofOneSale("quota", p.Quota != nil),
			ofOneSale("add_quota", p.AddQuota > 0),
		); invalid != nil {
			return model.BadRequest
		}
		*sale = completed(*sale)
		if invalid = cmp.Or(outOfMode(before, *sale), validate(*sale)); invalid == nil {
			invalid = s.stillPayable(before, *sale)
		}
		return acceptedIf(invalid == nil, model.BadRequest)
	}
	offer, verdict, err = s.change(ctx, model.SaleChange{
		SaleID: id, Actor: actor, Action: "patch", Edit: edit, AddQuota: p.AddQuota, Quota: quota, MostQuota: maxQuota, IfQuota: p.IfQuota,
	})
	if verdict == model.BadRequest && invalid == nil {
		invalid = Outside("add_quota", p.AddQuota, 0, maxQuota-offer.Stock.Quota)
	}
	return offer, verdict, invalid, err
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// SetStatus pauses, resumes or closes a sale. The verdict is Accepted; NotFound; Ended if a closed sale, or a shadow sale, would
// be paused or resumed; or BadRequest if the sale's campaign has a line, which all its sales share.
func (s *Sales) SetStatus(ctx context.Context, id string, status model.SaleStatus, action, actor string) (model.Offer, model.Verdict, error) {
	return s.change(ctx, model.SaleChange{SaleID: id, Actor: actor, Action: action, Edit: func(sale *model.Sale) model.Verdict {
		if sale.Campaign.ID != "" && sale.HasLine() {
			return model.BadRequest
		}
		if sale.Status != model.SaleLive && sale.Status != model.SalePaused && status != model.SaleClosed {
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
	s.configure(ctx, offer.Sale)
	if c.AddQuota > 0 || c.Quota > 0 {
		s.Gates.Changed(ctx, c.SaleID)
	}
	s.tell(ctx, c.SaleID)
	return offer, verdict, nil
}

func (s *Sales) configure(ctx context.Context, sale model.Sale) {
	if err := s.Gate.Configure(ctx, sale); err != nil {
		s.Log.WarnContext(ctx, "the gate missed a change and will be replaced", "sale", sale.ID, "error", err)
	}
}

// tell refreshes this instance's catalog and announces the changes to the other instances. It only logs failures.
func (s *Sales) tell(ctx context.Context, saleIDs ...string) {
	if err := s.Catalog.Refresh(ctx); err != nil {
		s.Log.WarnContext(ctx, "can't refresh the catalog after a change", "sales", saleIDs, "error", err)
	}
	for _, id := range saleIDs {
		if err := s.Gate.Announce(ctx, id); err != nil {
			s.Log.WarnContext(ctx, "other instances will find a change by polling", "sale", id, "error", err)
		}
	}
}

// ByCode returns the id of the sale behind a short link, or an empty string if there is none or only a shadow sale.
func (s *Sales) ByCode(ctx context.Context, code string) (string, error) {
	if known, err := s.Catalog.Known(ctx, code); err != nil || !known {
		return "", err
	}
	id, err := s.Catalog.live.Load().coded.get(ctx, code, s.Store.SaleByCode)
	if model.IsShadow(id) {
		return "", nil
	}
	return id, err
}

// validateNew returns the first invalid field of a sale that is to be created, or nil.
func (s *Sales) validateNew(sale model.Sale, quota int64) *Invalid {
	invalid := cmp.Or(
		badCurrency(sale),
		Invalid{Field: "mode", Reason: BadMode}.If(!slices.Contains(model.Modes, sale.Mode)),
		Outside("quota", quota, 1, maxQuota), Outside("parts", int64(sale.Shards), 1, model.MaxShards), outOfMode(completed(model.Sale{Mode: sale.Mode}), sale), validate(sale),
		Invalid{Field: "ends_at", Reason: InThePast}.If(!sale.EndsAt.After(s.Catalog.Now())),
	)
	if invalid != nil {
		return invalid
	}
	return Payable(sale, s.Takes)
}

// stillPayable returns the first field of a change that the payment provider does not take, or nil. An older sale may have a price
// or a currency that the provider does not take, and keeps it.
func (s *Sales) stillPayable(before, after model.Sale) *Invalid {
	samePrice := before.PriceCents == after.PriceCents && before.Currency == after.Currency
	if samePrice && before.LimitPerUser == after.LimitPerUser {
		return nil
	}
	invalid := cmp.Or(badCurrency(after), Payable(after, s.Takes))
	if samePrice && invalid != nil && invalid.Field != "limit_per_user" {
		return nil
	}
	return invalid
}

func badCurrency(sale model.Sale) *Invalid {
	_, known := model.Digits(sale.Currency)
	return Invalid{Field: "currency", Reason: BadCurrency, Value: sale.Currency}.If(!known)
}

// Payable returns the first field of a sale that does not fit the amounts that a payment provider takes, or nil.
func Payable(sale model.Sale, takes func(currency string) (amounts model.AmountRange, ok bool)) *Invalid {
	amounts, ok := takes(sale.Currency)
	switch {
	case sale.PriceCents == 0: // there is nothing to pay
		return nil
	case !ok:
		return &Invalid{Field: "currency", Reason: OtherCurrency, Value: sale.Currency}
	case sale.PriceCents%amounts.Step != 0:
		return &Invalid{Field: "price_cents", Reason: TooFine, Min: amounts.Step, Value: sale.Currency}
	case sale.PriceCents < amounts.Low || amounts.High < sale.PriceCents:
		return &Invalid{Field: "price_cents", Reason: OutOfPayment, Min: amounts.Low, Max: amounts.High, Value: sale.Currency}
	case sale.PriceCents > amounts.High/int64(sale.LimitPerUser):
		return &Invalid{Field: "limit_per_user", Reason: TooMuchToPay, Max: amounts.High / sale.PriceCents, Value: sale.Currency}
	}
	return nil
}

// validate returns the first invalid field of a sale, or nil.
func validate(sale model.Sale) *Invalid {
	return cmp.Or(
		Invalid{Field: "stock_shown", Reason: BadStockShown}.If(!slices.Contains(model.StocksShown, completed(sale).StockShown)),
		validateTexts(sale.Title, sale.Description, sale.ImageURL, maxTitle),
		Invalid{Field: "starts_at", Reason: BadYear, Min: minYear, Max: maxYear}.If(!era(sale.StartsAt)),
		Invalid{Field: "ends_at", Reason: BadYear, Min: minYear, Max: maxYear}.If(!era(sale.EndsAt)),
		Invalid{Field: "ends_at", Reason: NotAfterStart}.If(!sale.EndsAt.Truncate(time.Millisecond).After(sale.StartsAt.Truncate(time.Millisecond))),
		Outside("entry_work", sale.EntryWork, 0, maxEntryWork),
		Invalid{Field: "entries_at", Reason: NotBeforeStart}.If(!sale.EntriesAt.IsZero() && (!sale.EntriesAt.Before(sale.StartsAt) || !era(sale.EntriesAt))),
		Outside("call_seconds", int64(cmp.Or(sale.CallSeconds, defaultCallSeconds)), minCallSeconds, maxCallSeconds),
		Outside("price_cents", sale.PriceCents, 0, maxPriceCents),
		Outside("original_price_cents", sale.OriginalPriceCents, 0, maxPriceCents),
		Outside("limit_per_user", int64(sale.LimitPerUser), 1, maxLimit),
		Outside("pay_timeout_seconds", int64(sale.PayTimeoutSeconds), 1, maxPaySeconds),
	)
}

// outOfMode returns the first field that differs between two sales and does not act in the second, or nil.
func outOfMode(before, after model.Sale) *Invalid {
	for _, f := range model.ModeFields {
		if f.Value(before) != f.Value(after) && !f.ActsIn(after) {
			reason := map[bool]Reason{true: WithoutList, false: OtherMode}[slices.Contains(f.WithList, after.Mode)]
			return &Invalid{Field: f.Name, Reason: reason, Value: string(after.Mode)}
		}
	}
	return nil
}

// validateTexts returns the first invalid one of the texts that buyers see, or nil.
func validateTexts(title, description, imageURL string, longestTitle int) *Invalid {
	plain := strings.NewReplacer("\n", " ", "\t", " ").Replace(description)
	return cmp.Or(
		Invalid{Field: "title", Reason: BadText, Min: 1, Max: int64(longestTitle)}.If(!text(title, longestTitle) || !visible(title)),
		Invalid{Field: "description", Reason: BadText, Max: maxDescription}.If(!text(plain, maxDescription)),
		Invalid{Field: "image_url", Reason: BadLink, Max: maxImageURL}.If(!link(imageURL)),
	)
}

// era reports whether a time is in the years minYear to maxYear.
func era(t time.Time) bool { return minYear <= t.Year() && t.Year() <= maxYear }

// text reports whether s is valid UTF-8 without control characters and has at most limit characters.
func text(s string, limit int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= limit && !strings.ContainsFunc(s, unicode.IsControl)
}

// visible reports whether s has a character that leaves a mark on the screen.
func visible(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.M, r) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) &&
			r != '\u2800' // Braille without dots
	})
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
