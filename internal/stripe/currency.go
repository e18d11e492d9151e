package stripe

import (
	"errors"
	"slices"
	"strings"

	api "github.com/stripe/stripe-go/v84"

	"flashsale/model"
)

// Stripe takes amounts in the smallest unit of a currency: https://docs.stripe.com/currencies. These have no cents, or
// thousandths instead. Stripe treats the others, also HUF, ISK, TWD and UGX, as currencies with cents, although an amount in ISK or
// UGX must be whole (model.AllAmounts).
var (
	withoutCents = []string{
		"bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf",
	}
	withThousandths = []string{"bhd", "jod", "kwd", "omr", "tnd"}
)

// least is the least charge of a currency, in hundredths, where Stripe has one that is more than its smallest unit:
// https://docs.stripe.com/currencies#minimum-and-maximum-charge-amounts. Stripe takes less by some means of payment. Where it
// exchanges the money, the least charge is that of the account's currency, and may be less or more.
var least = map[string]int64{
	"aed": 200, "aud": 50, "bgn": 100, "brl": 50, "cad": 50, "chf": 50, "czk": 1500, "dkk": 250, "eur": 50, "gbp": 30, "hkd": 400,
	"huf": 17500, "inr": 50, "jpy": 5000, "mxn": 1000, "myr": 200, "nok": 300, "nzd": 50, "pln": 200, "ron": 200, "sek": 300,
	"sgd": 50, "thb": 1000, "usd": 50,
}

// The largest charge is a number of eight digits in the smallest unit, and of twelve in rupiahs.
const most, mostRupiahs = 99_999_999, 999_999_999_999

// taken are the currencies that Stripe takes.
const taken = `aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd bwp byn bzd cad cdf chf clp cny cop
	crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl hrk htg huf idr ils inr isk jmd jod
	jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk mnt mop mro mru mur mvr mwk mxn myr mzn nad
	ngn nio nok npr nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar sbd scr sek sgd shp sle sll sos srd std stn
	svc szl thb tjs tnd top try ttd twd tzs uah ugx usd uyu uzs vnd vuv wst xaf xcd xcg xof xpf yer zar zmw`

// Takes is part of service.Provider.
func (p *Provider) Takes(currency string) (amounts model.AmountRange, ok bool) {
	code := strings.ToLower(currency)
	amounts = model.AllAmounts(currency, 1)
	if slices.Contains(withoutCents, code) {
		amounts.Step = 100
	}
	largest := int64(most)
	if code == "idr" {
		largest = mostRupiahs
	}
	amounts.Low, amounts.High = max(least[code], amounts.Step), moneyOf(api.Currency(code), largest).Cents
	return amounts, slices.Contains(strings.Fields(taken), code)
}

// errFraction: a currency without cents can't pay a part of its unit.
var errFraction = errors.New("the amount is not a whole number in a currency without cents")

// toSmallest converts hundredths of a currency.
func toSmallest(currency string, cents int64) (int64, error) {
	switch {
	case slices.Contains(withoutCents, currency) && cents%100 != 0:
		return 0, errFraction
	case slices.Contains(withoutCents, currency):
		return cents / 100, nil
	case slices.Contains(withThousandths, currency):
		return 10 * cents, nil
	}
	return cents, nil
}

// moneyOf is the reverse of toSmallest.
func moneyOf(currency api.Currency, amount int64) model.Money {
	money := model.Money{Cents: amount, Currency: strings.ToUpper(string(currency))}
	switch code := strings.ToLower(string(currency)); {
	case slices.Contains(withoutCents, code):
		money.Cents = 100 * amount
	case slices.Contains(withThousandths, code):
		money.Cents, money.Rounded = amount/10, amount%10 != 0
	}
	return money
}
