package service

import (
	"testing"
	"time"

	"flashsale/model"
)

func BenchmarkVerify(b *testing.B) {
	tokens := NewTokens(tokenSecret, time.Now)
	token, _, err := tokens.Sign(model.Identity{UserID: "u-1", Role: model.RoleBuyer}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tokens.Verify(token); err != nil {
			b.Fatal(err)
		}
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
