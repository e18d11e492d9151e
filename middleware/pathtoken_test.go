package middleware

import (
	"testing"

	"flashsale/model"
)

// issued is the one path that was handed out.
type issued struct{ path, userID, saleID string }

func (i issued) Check(path, userID, saleID string) bool { return i == issued{path, userID, saleID} }

func TestPathToken(t *testing.T) {
	tests := map[string]struct {
		issued issued
		want   string
	}{
		"their own":      {issued{"secretpath", "u-1", "S1"}, "ok"},
		"another user's": {issued{"secretpath", "u-2", "S1"}, "bad_path after 0s"},
		"another sale's": {issued{"secretpath", "u-1", "S2"}, "bad_path after 0s"},
		"another path":   {issued{"elsewhere", "u-1", "S1"}, "bad_path after 0s"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, as(model.Identity{UserID: "u-1"}), PathToken(tc.issued))
			if got := serve(engine, newRequest(t)).Body.String(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
