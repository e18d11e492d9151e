package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A sale that was sold out before anybody looked has its report, and its charts begin with it.
func TestReport(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 3, "limit_per_user": 3, "price_cents": 1250, "currency": "CNY", "starts_at": time.Now().Add(-5 * time.Second)})
	ann := s.buyer("ann")
	s.pay(s.buy(sale, ann, 2), ann)
	s.buy(sale, s.buyer("ben"), 1)
	s.trade(sale, s.buyer("eve"), 3) // which are refused

	w := s.open(desktop, "/console/sales/"+sale)
	w.operate()
	w.see("#line", "Live")
	w.lacks("#report")
	w.click(`#views [href="#report"]`)
	w.sees(texts{
		"#tile-gross .value": "¥25.00", "#tile-gross .note": "¥25.00 after refunds", "#tile-refunds .value": "¥0.00",
		"#tile-units .value": "2", "#tile-units .note": "of 3", "#tile-sold_out .note": "after the start",
		"#steps": "Attempts to buy\t5", "#refusals": "Sold out\t3\t60 %",
	})
	w.see("#steps", "Admitted attempts\t2\t40 %")
	w.see("#steps", "Paid orders\t1\t50 %")
	w.lacks("#tile-lapsed", "#owner", "#orders", "#engine")
	w.becomes("the chart has a curve", `document.querySelectorAll("#report-chart canvas").length === 1 && document.querySelector("#report-chart .legend strong").textContent !== ""`)

	js[bool](w, fmt.Sprintf(`document.getElementById("range-from").value = %q, true`, time.Now().Add(-48*time.Hour).Format(time.DateOnly)))
	lines := w.download("orders-"+sale+".csv", "#range-csv", "#range-told")
	if len(lines) != 3 || !strings.Contains(fmt.Sprint(lines), "25.00") {
		t.Errorf("the file holds %q", lines)
	}
	w.speak("zh")
	w.sees(texts{"#report-chart-title": "前十分钟的每秒答复", "#steps": "放行的抢购", "#refusals": "售罄"})

	w.speak("en")
	w.visit("/console")
	w.wakes("#range-csv")
	js[bool](w, fmt.Sprintf(`document.getElementById("range-to").value = %q, true`, time.Now().Add(-48*time.Hour).Format(time.DateOnly)))
	if lines := w.download("orders-all.csv", "#range-csv", "#range-told"); len(lines) != 1 {
		t.Errorf("the file of days without orders holds %q", lines)
	}
}
