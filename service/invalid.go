package service

// Invalid describes what is wrong with an input. It has no text in any language; package handler writes the message.
type Invalid struct {
	Field    string // the field's name in the API; empty if the whole input is wrong
	Reason   Reason
	Min, Max int64  // the bounds, if the reason has any
	Value    string // the input's value or the allowed values, if the reason quotes them
}

// Reason is a way in which an input can be wrong.
type Reason string

// The reasons of wrong sales and accounts.
const (
	OutOfRange     Reason = "out_of_range"     // a number below Min or above Max
	BadText        Reason = "bad_text"         // fewer than Min or more than Max characters, or one that can't be printed
	BadLink        Reason = "bad_link"         // neither empty, nor a path, nor an http(s) URL of at most Max characters
	BadCurrency    Reason = "bad_currency"     // not three capital letters
	OtherCurrency  Reason = "other_currency"   // one that the payment provider does not take
	NoCents        Reason = "no_cents"         // not a multiple of Min, in a currency whose smallest unit that is
	OutOfPayment   Reason = "out_of_payment"   // neither 0 nor an amount from Min to Max that the payment provider takes
	TooMuchToPay   Reason = "too_much_to_pay"  // more than Max units at once cost more than the payment provider takes
	BadYear        Reason = "bad_year"         // outside of the years Min to Max
	InThePast      Reason = "in_the_past"      // a time that is over already
	NotAfterStart  Reason = "not_after_start"  // an end that is no later than the start
	NoOrder        Reason = "no_order"         // a sale of the mode rush has no order to draw
	BadMode        Reason = "bad_mode"         // not one of the modes of a sale
	NotBeforeStart Reason = "not_before_start" // entries that open no earlier than the sale
	OfCampaign     Reason = "of_campaign"      // it can be changed for all sales of the campaign only
	OfOneSale      Reason = "of_one_sale"      // each sale of the campaign has it for itself
	RepeatedName   Reason = "repeated_name"    // the campaign has another sale with this variant
	BadName        Reason = "bad_name"         // not Min to Max letters, digits and . _ -
	BadPassword    Reason = "bad_password"     // not Min to Max bytes of UTF-8
	BadVerifier    Reason = "bad_verifier"     // not Min to Max letters, digits and . _ ~ -
	BadRole        Reason = "bad_role"         // not one of the staff's roles
	BadEndpoint    Reason = "bad_endpoint"     // not a URL of at most Max characters to which events may be sent
)

// If returns the Invalid if the input is wrong, else nil. So cmp.Or of several inputs returns the first that is wrong.
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
