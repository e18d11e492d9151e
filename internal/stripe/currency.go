package stripe

import (
	"errors"
	"slices"
	"strings"

	api "github.com/stripe/stripe-go/v84"

	"flashsale/model"
)

// Stripe takes amounts in the smallest unit of a currency: https://docs.stripe.com/currencies. These have no cents, or
// thousandths instead. Stripe treats the others, also HUF, ISK, TWD and UGX, as currencies with cents.
var (
	withoutCents = []string{
		"bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf",
	}
	withThousandths = []string{"bhd", "jod", "kwd", "omr", "tnd"}
)

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
