package load

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// abRequests is how many requests ab.sh sends by default.
const abRequests = 10_000

func TestABReads(t *testing.T) {
	s := serve(t)
	judge(t, runKit(t, 0, nil, "./ab.sh", "read", s.page(s.sale(10, 1, time.Now()))), 0)
}

// One buyer tries ten thousand times. The orders end at the buyer's limit, or when the sale is sold out.
func TestABBuys(t *testing.T) {
	for command, tc := range map[string]struct {
		quota, limit int
		refusal      string
	}{
		"buy":  {100, 50, `"code":"limit_reached"`},
		"demo": {50, 100, `"code":"sold_out"`}, // needs only the address that the server prints at its start
	} {
		t.Run(command, func(t *testing.T) {
			s := serve(t)
			saleID := s.sale(tc.quota, tc.limit, time.Now())
			args := []string{command, s.page(saleID)}
			if command == "buy" {
				_, token, _ := strings.Cut(strings.TrimSpace(read(t, s.tokens(1))), "\nu1,")
				args = append(args, token)
			}
			output := runKit(t, 0, nil, "./ab.sh", args...)
			judge(t, output, abRequests-50)
			if !strings.Contains(output, tc.refusal) {
				t.Errorf("ab.sh does not show the refusal %s", tc.refusal)
			}
			s.audited(saleID, 50, 0)
		})
	}
}

func TestABShowsItsUsage(t *testing.T) {
	t.Parallel()
	page := "http://127.0.0.1:8080/sales/E4OFUH3WQZGZCWAR"
	for _, args := range []string{"", "read", "read http://127.0.0.1:8080", "buy " + page, "buy E4OF token", "load " + page} {
		if output := runKit(t, 2, nil, "./ab.sh", strings.Fields(args)...); strings.Count(output, "test/load/ab.sh ") != 3 {
			t.Errorf("ab.sh %q does not show its usage", args)
		}
	}
}

// judge checks that ab got an answer to each request, and how many answers were refusals.
func judge(t *testing.T, output string, refused int) {
	t.Helper()
	want := fmt.Sprintf("Complete requests:      %d\nFailed requests:        0", abRequests)
	if refused > 0 { // otherwise ab omits the line
		want += fmt.Sprintf("\nNon-2xx responses:      %d", refused)
	}
	lines := regexp.MustCompile(`(?m)^(?:Complete requests|Failed requests|Non-2xx responses): .*$`).FindAllString(output, -1)
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("ab printed\n%s\nwant\n%s", got, want)
	}
}
