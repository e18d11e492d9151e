//go:build bench

package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// A program that was written from docs/fairness.md alone agrees with a draw of the engine, and finds what was changed in its
// proof.
func TestDrawInPython(t *testing.T) {
	s := shop.Embedded(t)
	url := s.Start("--demo=false", "--ip-rate=0", "--limit-rate=100000").URL
	now := time.Now().UTC()
	sale, _ := s.Must(http.StatusCreated, "POST", url+"/api/v1/admin/sales", s.Operator(url), shop.Document{
		"title": "draw", "price_cents": 990, "quota": 7, "mode": "draw", "limit_per_user": 2,
		"starts_at": now.Add(time.Hour).Format(time.RFC3339Nano), "ends_at": now.Add(2 * time.Hour).Format(time.RFC3339Nano),
	})["id"].(string)
	line := url + "/api/v1/sales/" + sale
	for i := range 23 {
		s.Must(http.StatusCreated, "POST", line+"/entries", s.Token(fmt.Sprint("user-", i)), shop.Document{"quantity": 1 + i%2})
	}
	s.Must(http.StatusOK, "DELETE", line+"/entries/mine", s.Token("user-5"), nil)
	s.Must(http.StatusOK, "PATCH", url+"/api/v1/admin/sales/"+sale, s.Operator(url), shop.Document{"starts_at": time.Now().UTC().Format(time.RFC3339Nano)})
	check.Eventually(t, "the draw is over", func() bool { return s.Must(http.StatusOK, "GET", line+"/line", "", nil)["phase"] == "over" })

	doc := s.Must(http.StatusOK, "GET", line+"/draw.json", "", nil)
	verify := func(doc shop.Document) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "draw.json")
		check.NoError(t, os.WriteFile(file, check.Must(json.Marshal(doc)), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		output, _ := exec.CommandContext(ctx, "python3", "verify_draw.py", file).CombinedOutput()
		return strings.TrimSpace(string(output))
	}
	check.Same(t, "the draw", verify(doc), "everything agrees")
	list := doc["winners"].([]any)
	list[0], list[1] = list[1], list[0]
	check.Same(t, "with two winners in another order", verify(doc), "wrong: winners")
	doc["secret"] = strings.Repeat("00", 32)
	check.Same(t, "with another secret", verify(doc), "wrong: commitment, seed, winners")
}
