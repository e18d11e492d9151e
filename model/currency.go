package model

import (
	"fmt"
	"slices"
	"strings"
)

// Currencies lists codes of ISO 4217 by the number of digits after the decimal sign of an amount. For some of them, browsers and
// golang.org/x/text have other numbers.
var Currencies = [...]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF",
	2: `AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP CVE CZK
		DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD
		KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP
		PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH
		USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG`,
	3: "BHD IQD JOD KWD LYD OMR TND",
}

// Digits returns how many digits an amount of a currency has after the decimal sign. An unknown code has two.
func Digits(currency string) (digits int, known bool) {
	for digits, codes := range Currencies {
		if slices.Contains(strings.Fields(codes), currency) {
			return digits, true
		}
	}
	return 2, false
}

// Amount writes an amount of at least 0 in the currency's smallest unit as a decimal number such as 12.50.
func Amount(smallest int64, currency string) string {
	digits, _ := Digits(currency)
	text := fmt.Sprintf("%0*d", digits+1, smallest)
	return strings.TrimSuffix(text[:len(text)-digits]+"."+text[len(text)-digits:], ".")
}
