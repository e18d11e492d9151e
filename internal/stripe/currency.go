package stripe

import (
	"errors"
	"strings"

	api "github.com/stripe/stripe-go/v84"

	"flashsale/model"
)

// ratio says that "units" of Stripe are worth "smallest" smallest units of a currency, and that an amount must be a multiple of
// "step" smallest units, see https://docs.stripe.com/currencies. Stripe counts hundredths of ISK and UGX, and whole MGA.
func ratio(code string) (units, smallest, step int64) {
	switch code {
	case "isk", "ugx":
		return 100, 1, 1
	case "mga":
		return 1, 100, 100
	case "bhd", "jod", "kwd", "omr", "tnd":
		return 1, 1, 10
	}
	return 1, 1, 1
}

// least has the least charge of currencies, in their smallest units, if that is more than one unit, see
// https://docs.stripe.com/currencies#minimum-and-maximum-charge-amounts. In some cases Stripe demands more or takes less.
var least = map[string]int64{
	"aed": 200, "aud": 50, "brl": 50, "cad": 50, "chf": 50, "czk": 1500, "dkk": 250, "eur": 50, "gbp": 30, "hkd": 400,
	"huf": 17500, "inr": 50, "jpy": 50, "mxn": 1000, "myr": 200, "nok": 300, "nzd": 50, "pln": 200, "ron": 200, "sek": 300,
	"sgd": 50, "thb": 1000, "usd": 50,
}

// most is the largest charge, in Stripe's units. In IDR it is mostRupiahs.
const most, mostRupiahs = 99_999_999, 999_999_999_999

// unknown are the currencies of model.Currencies that Stripe does not take.
const unknown = "btn cup ern ghs iqd irr kpw lyd sdg ssp syp tmt ved ves zwg"

// Takes is part of service.Provider.
func (p *Provider) Takes(currency string) (amounts model.AmountRange, ok bool) {
	code, largest := strings.ToLower(currency), int64(most)
	if code == "idr" {
		largest = mostRupiahs
	}
	_, _, step := ratio(code)
	high := moneyOf(api.Currency(code), largest).Cents
	_, known := model.Digits(currency)
	return model.AmountRange{Low: max(least[code], step), High: high - high%step, Step: step}, known && !strings.Contains(unknown, code)
}

var errFraction = errors.New("the amount has a smaller part than Stripe takes of its currency")

// toStripe converts an amount from the currency's smallest unit to Stripe's. The error is errFraction.
func toStripe(code string, amount int64) (int64, error) {
	units, smallest, step := ratio(code)
	if amount%step != 0 {
		return 0, errFraction
	}
	return amount * units / smallest, nil
}

// moneyOf is the reverse of toStripe. It leaves out a fraction of a smallest unit, and then sets Rounded.
func moneyOf(code api.Currency, amount int64) model.Money {
	units, smallest, _ := ratio(string(code))
	return model.Money{Cents: amount * smallest / units, Currency: strings.ToUpper(string(code)), Rounded: amount*smallest%units != 0}
}
