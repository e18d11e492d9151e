package service

import "flashsale/model"

// Invalid describes what is wrong with an input. It has no text in any language.
type Invalid struct {
	Field    string // the field's name in the API; empty if the whole input is wrong
	Reason   Reason
	Min, Max int64  // the bounds, if the reason has any; for TooFine, Min is the step
	Value    string // what the message quotes, such as the input's value
}

// Reason is a way in which an input can be wrong.
type Reason string

// The reasons why an input is refused.
const (
	OutOfRange     Reason = "out_of_range"     // a number below Min or above Max
	BadText        Reason = "bad_text"         // not a readable text of Min to Max characters
	BadLink        Reason = "bad_link"         // neither empty, nor a path, nor an http(s) URL of at most Max characters
	BadCurrency    Reason = "bad_currency"     // Value is not the code of a currency
	OtherCurrency  Reason = "other_currency"   // a currency that the payment provider does not take
	TooFine        Reason = "too_fine"         // a price that is no multiple of Min, as the payment provider asks
	OutOfPayment   Reason = "out_of_payment"   // a price that is not 0, and not from Min to Max as the payment provider asks
	TooMuchToPay   Reason = "too_much_to_pay"  // a limit above Max: more units cost more than the payment provider takes at once
	BadYear        Reason = "bad_year"         // a time outside of the years Min to Max
	InThePast      Reason = "in_the_past"      // a time that is over already
	NotAfterStart  Reason = "not_after_start"  // an end that is no later than the start
	OtherMode      Reason = "other_mode"       // a field that does not act in a sale of the mode Value
	WithoutList    Reason = "without_list"     // a field that acts in a sale of the mode Value only with a waiting list
	BadMode        Reason = "bad_mode"         // not one of the modes of a sale
	BadStockShown  Reason = "bad_stock_shown"  // not one of model.StocksShown
	NotBeforeStart Reason = "not_before_start" // entries that do not open before the sale, or that open before the year 2000
	OfCampaign     Reason = "of_campaign"      // a field that can't be set for this sale of a campaign, or for the line of one
	OfOneSale      Reason = "of_one_sale"      // a field that each sale of the campaign has for itself
	RepeatedName   Reason = "repeated_name"    // a variant that another sale of the campaign has
	BadName        Reason = "bad_name"         // not Min to Max letters, digits and . _ -
	BadPassword    Reason = "bad_password"     // not Min to Max bytes of UTF-8
	BadVerifier    Reason = "bad_verifier"     // not Min to Max letters, digits and . _ ~ -
	BadRole        Reason = "bad_role"         // not a role that this member of the staff, or this key, can have
	BadColor       Reason = "bad_color"        // not # with six hexadecimal digits
	BadEndpoint    Reason = "bad_endpoint"     // not a URL of at most Max characters to which events may be sent
)

// If returns a pointer to i if "wrong" is true, else nil. So cmp.Or of several calls of If returns the first thing that is wrong.
func (i Invalid) If(wrong bool) *Invalid {
	if !wrong {
		return nil
	}
	return &i
}

// Outside returns an Invalid if n is below low or above high, else nil.
func Outside(field string, n, low, high int64) *Invalid {
	return Invalid{Field: field, Reason: OutOfRange, Min: low, Max: high}.If(n < low || n > high)
}

// acceptedIf returns Accepted if ok is true, else the refusal.
func acceptedIf(ok bool, refusal model.Verdict) model.Verdict {
	if ok {
		return model.Accepted
	}
	return refusal
}
