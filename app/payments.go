package app

import (
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

// Takes returns what the payment provider takes that the settings name.
func Takes(s config.Settings) func(currency string) (amounts model.AmountRange, ok bool) {
	if s.Provider() == "stripe" {
		return (&stripe.Provider{}).Takes
	}
	return model.TakesAll
}

// takeMoney makes the payment provider that the settings name, and gives the API what belongs to it.
func (a *App) takeMoney(api *handler.API, db *repository.Store, pages *web.Pages) (err error) {
	var provider service.Provider
	orders := func() string { return a.URL() + "/orders" }
	switch a.settings.Provider() {
	case "stripe":
		provider = stripe.New(a.settings.StripeKey, a.settings.StripeWebhookSecret, a.settings.StripeURL, orders, a.Catalog.Now)
	case "handoff":
		checkout, err := handoff.New(a.settings.CheckoutURL, []byte(a.settings.Secret), a.URL, a.Catalog.Now)
		if err != nil {
			return err
		}
		provider, api.HoldKeys = checkout, checkout.Keys()
	default:
		if !a.settings.Embedded() {
			a.Log.Warn("payments are pretended: anybody may pay without money", "payment", "sandbox")
		}
		bank := &sandbox.Provider{
			Books: db, Read: db.Payment, Secret: []byte(a.settings.PaymentSecret), Head: pages.Head(), PublicURL: a.URL,
			// The callback goes directly to this instance, because a proxy in front of it may not be up yet.
			CallbackURL: func() string { return "http://" + reachable(a.listener.Addr()) + "/api/v1/payments/callback" },
			Now:         a.Catalog.Now, Log: a.Log,
		}
		provider, api.Sandbox = bank, bank
		a.workers = append(a.workers, bank.Run)
	}
	api.Payments = &service.Payments{
		Provider: provider, Store: db, IDs: a.IDs, Gates: a.gates, Catalog: a.Catalog, Grace: a.settings.PayGrace, Orders: orders, Log: a.Log,
	}
	_, api.Notices = provider.(service.Notifier)
	if api.HoldKeys != nil {
		api.Holds = &service.Holds{Orders: api.Orders, Payments: api.Payments}
	}
	return nil
}
