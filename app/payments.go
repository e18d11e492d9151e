package app

import (
	"fmt"

	"flashsale/handler"
	"flashsale/internal/config"
	"flashsale/internal/handoff"
	"flashsale/internal/sandbox"
	"flashsale/internal/stripe"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/web"
)

// Takes returns a function that says which prices above 0 in a currency the payment provider of the settings takes.
func Takes(s config.Settings) func(currency string) (amounts model.AmountRange, ok bool) {
	if s.Provider() == "stripe" {
		return (&stripe.Provider{}).Takes
	}
	return model.TakesAll
}

// takeMoney makes the payment provider of the settings, and returns the provider's parts of the API. holds is nil unless the
// provider is the shop's own checkout.
func (a *App) takeMoney(db *repository.Store, pages *web.Pages, orders *service.Orders) (payments handler.Payments, holds *handler.Holds, err error) {
	var provider service.Provider
	page := func() string { return a.URL() + "/orders" }
	switch a.settings.Provider() {
	case "stripe":
		provider = stripe.New(a.settings.StripeKey, a.settings.StripeWebhookSecret, a.settings.StripeURL, page, a.Catalog.Now)
	case "handoff":
		checkout, err := handoff.New(a.settings.CheckoutURL, []byte(a.settings.Secret), a.URL, a.Catalog.Now)
		if err != nil {
			return payments, nil, err
		}
		provider, holds = checkout, &handler.Holds{Keys: checkout.Keys()}
	case "sandbox":
		if !a.settings.Embedded() {
			a.Log.Warn("payments are pretended: anybody may pay without money", "payment", "sandbox")
		}
		bank := &sandbox.Provider{
			Books: db, Read: db.Payment, Secret: []byte(a.settings.PaymentSecret), Head: pages.Head(), PublicURL: a.URL,
			// Callbacks go directly to this instance, because a proxy in front may be down.
			CallbackURL: func() string { return "http://" + reachable(a.listener.Addr()) + "/api/v1/payments/callback" },
			Now:         a.Catalog.Now, Log: a.Log,
		}
		provider, payments.Sandbox = bank, bank
		a.workers = append(a.workers, bank.Run)
	default:
		return payments, nil, fmt.Errorf("no code makes the payment provider %q", a.settings.Provider())
	}
	payments.Service = &service.Payments{
		Provider: provider, Store: db, IDs: a.IDs, Gates: a.gates, Catalog: a.Catalog, Grace: a.settings.PayGrace, Orders: page, Log: a.Log,
	}
	_, payments.Notices = provider.(service.Notifier)
	if holds != nil {
		holds.Service = &service.Holds{Orders: orders, Payments: payments.Service}
	}
	return payments, holds, nil
}
