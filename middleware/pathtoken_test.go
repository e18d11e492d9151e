package middleware

import (
	"testing"

	"flashsale/test/kit/check"
)

// issued is the only path that was issued.
type issued struct{ path, userID, saleID string }

func (i issued) Check(path, userID, saleID string) bool { return i == issued{path, userID, saleID} }

func TestPathToken(t *testing.T) {
	for path, want := range map[issued]string{
		{"secretpath", "u-1", "S1"}: "ok",
		{"secretpath", "u-2", "S1"}: "bad_path after 0s",
		{"secretpath", "u-1", "S2"}: "bad_path after 0s",
		{"elsewhere", "u-1", "S1"}:  "bad_path after 0s",
	} {
		check.Same(t, "of "+path.userID+" in "+path.saleID, answer(t, newEngine(as(buyer), PathToken(path))), want)
	}
}
