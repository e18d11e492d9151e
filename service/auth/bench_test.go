package auth

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func BenchmarkVerify(b *testing.B) {
	tokens := NewTokens(tokenSecret, time.Now)
	token := check.Must(sign(tokens, model.Identity{UserID: "u-1", Role: model.RoleBuyer}))
	b.ReportAllocs()
	for b.Loop() {
		check.Must(tokens.Verify(token))
	}
}

// BenchmarkVerifyOfIssuer verifies a token by RS256 of an issuer outside again and again, as a buyer's requests do.
func BenchmarkVerifyOfIssuer(b *testing.B) {
	p := newProvider(b)
	tokens, token := p.tokens(), p.signed("rsa", nil)
	b.ReportAllocs()
	for b.Loop() {
		check.Must(tokens.Verify(token))
	}
}

func BenchmarkPathCheck(b *testing.B) {
	paths := NewPaths(tokenSecret, time.Now)
	path, _ := paths.Issue("u-1", "AAAAAAAAAAAAAAAA", time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if !paths.Check(path, "u-1", "AAAAAAAAAAAAAAAA") {
			b.Fatal("refused")
		}
	}
}

// BenchmarkVerifyBuyers verifies tokens of many buyers in turn: as Sign writes them, and as another issuer may.
func BenchmarkVerifyBuyers(b *testing.B) {
	for _, buyers := range []int{1, 20_000, 1_000_000} {
		for _, issuer := range []string{"ours", "another's"} {
			b.Run(fmt.Sprintf("%s/%d", issuer, buyers), func(b *testing.B) {
				tokens := NewTokens(tokenSecret, time.Now)
				all := make([]string, buyers)
				for i := range all {
					all[i] = tokenOf(tokens, issuer, fmt.Sprintf("bench-buyer-%08d", i))
				}
				for i := 0; b.Loop(); i++ {
					check.Must(tokens.Verify(all[i%buyers]))
				}
			})
		}
	}
}
