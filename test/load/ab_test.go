package load

import (
	"encoding/csv"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The load of M27, which ab.sh sends by itself.
const abRequests = 10_000

// unlimited are a server's settings for a load from one address and one user.
var unlimited = []string{"--ip-rate=0", "--user-requests=0"}

func TestABReads(t *testing.T) {
	s := serve(t, unlimited...)
	output, code := runKit(t, nil, "./ab.sh", "read", s.page(s.sale(10, 1, time.Now())))
	if code != 0 {
		t.Fatalf("ab.sh ended with %d", code)
	}
	judge(t, output, 0)
}

// One buyer tries ten thousand times and gets as many units as one buyer may have.
func TestABBuys(t *testing.T) {
	const limit = 50
	s := serve(t, unlimited...)
	saleID := s.sale(100, limit, time.Now())
	output, code := runKit(t, nil, "./ab.sh", "buy", s.page(saleID), s.token())
	if code != 0 {
		t.Fatalf("ab.sh ended with %d", code)
	}
	judge(t, output, abRequests-limit)
	if !strings.Contains(output, `"code":"limit_reached"`) {
		t.Error("ab.sh does not show what the refusals say")
	}
	s.audited(saleID, limit, 0)
}

// It needs nothing but what the server prints at its start; a sale may also end before a buyer's limit is reached.
func TestABDemo(t *testing.T) {
	const quota = 50
	s := serve(t, unlimited...)
	saleID := s.sale(quota, 100, time.Now())
	output, code := runKit(t, nil, "./ab.sh", "demo", s.page(saleID))
	if code != 0 {
		t.Fatalf("ab.sh ended with %d", code)
	}
	judge(t, output, abRequests-quota)
	if !strings.Contains(output, `"code":"sold_out"`) {
		t.Error("ab.sh does not show what the refusals say")
	}
	s.audited(saleID, quota, 0)
}

func TestABIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	page := "http://127.0.0.1:8080/sales/E4OFUH3WQZGZCWAR"
	for _, args := range [][]string{{}, {"read"}, {"read", "http://127.0.0.1:8080"}, {"buy", page}, {"buy", "E4OFUH3WQZGZCWAR", "token"}, {"load", page}} {
		output, code := runKit(t, nil, "./ab.sh", args...)
		if code != 2 || strings.Count(output, "test/load/ab.sh ") != 3 {
			t.Errorf("ab.sh %q ended with %d", args, code)
		}
	}
}

// judge holds what ab printed to a load that was answered in full, and so often by a refusal.
func judge(t *testing.T, output string, refused int) {
	t.Helper()
	want := map[string]int{"Complete requests": abRequests, "Failed requests": 0}
	if refused > 0 { // or ab leaves the line out
		want["Non-2xx responses"] = refused
	}
	got := map[string]int{}
	for _, line := range regexp.MustCompile(`(?m)^(Complete requests|Failed requests|Non-2xx responses): +(\d+)$`).FindAllStringSubmatch(output, -1) {
		got[line[1]], _ = strconv.Atoi(line[2]) // digits
	}
	if !maps.Equal(got, want) {
		t.Errorf("ab says %v, want %v", got, want)
	}
}

// token signs one buyer in.
func (s *server) token() string {
	s.t.Helper()
	file, err := os.Open(s.tokens(1))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) != 2 {
		s.t.Fatalf("tokens: %v, %v", rows, err)
	}
	return rows[1][1]
}
