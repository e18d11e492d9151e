package stripe

import (
	"errors"
	"slices"
	"strings"

	api "github.com/stripe/stripe-go/v84"

	"flashsale/model"
)

// smallest returns how many thousandths of a currency are its smallest unit at Stripe, where an amount is a number of smallest
// units: https://docs.stripe.com/currencies. Stripe treats ISK and UGX as currencies with cents, although an amount in them must
// be whole (model.AllAmounts), and MGA, which has fifths, as a currency without cents.
func smallest(currency string) int64 {
	code := strings.ToUpper(currency)
	switch whole := model.AllAmounts(code, 1).Step == 100; {
	case code == "MGA" || whole && code != "ISK" && code != "UGX":
		return 1000
	case slices.Contains([]string{"BHD", "JOD", "KWD", "OMR", "TND"}, code):
		return 1
	}
	return 10
}

// least is the least charge, in hundredths, of each currency for which Stripe demands more than the smallest unit:
// https://docs.stripe.com/currencies#minimum-and-maximum-charge-amounts. With some means of payment, Stripe takes less. If Stripe
// exchanges the money, the least charge of the account's currency counts instead, which may be less or more.
var least = map[string]int64{
	"aed": 200, "aud": 50, "bgn": 100, "brl": 50, "cad": 50, "chf": 50, "czk": 1500, "dkk": 250, "eur": 50, "gbp": 30, "hkd": 400,
	"huf": 17500, "inr": 50, "jpy": 5000, "mxn": 1000, "myr": 200, "nok": 300, "nzd": 50, "pln": 200, "ron": 200, "sek": 300,
	"sgd": 50, "thb": 1000, "usd": 50,
}

// most is the largest charge in smallest units, which has eight digits. In IDR it is mostRupiahs, which has twelve.
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
	amounts.Step = max(amounts.Step, smallest(code)/10)
	largest := int64(most)
	if code == "idr" {
		largest = mostRupiahs
	}
	amounts.Low, amounts.High = max(least[code], amounts.Step), moneyOf(api.Currency(code), largest).Cents
	return amounts, slices.Contains(strings.Fields(taken), code)
}

// errFraction means that an amount is not a whole number of smallest units.
var errFraction = errors.New("the amount is not a whole number in a currency without cents")

// toSmallest converts hundredths of a currency to its smallest units. The only error is errFraction.
func toSmallest(currency string, cents int64) (int64, error) {
	unit := smallest(currency)
	if 10*cents%unit != 0 {
		return 0, errFraction
	}
	return 10 * cents / unit, nil
}

// moneyOf is the reverse of toSmallest. Rounded is true if the amount has a part of a hundredth, which is left out.
func moneyOf(currency api.Currency, amount int64) model.Money {
	thousandths := amount * smallest(string(currency))
	return model.Money{Cents: thousandths / 10, Currency: strings.ToUpper(string(currency)), Rounded: thousandths%10 != 0}
}
