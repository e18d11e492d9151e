package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The shop and the engine, built and connected as `make example` does it: a customer buys, the order is paid in the engine,
// and the shop lists it as paid.
func TestExample(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	e, err := start(t.Context(), options{shopAddr: "127.0.0.1:0", engineAddr: "127.0.0.1:0", source: "../../..", out: &out, logs: t.Output()})
	defer func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	orderID, err := e.purchase(t.Context())
	if err != nil {
		t.Fatalf("%v, after\n%s", err, &out)
	}
	var in struct{ Token string }
	if err := e.api(t.Context(), "POST", "/sessions", "", fields{"name": "admin", "password": e.password}, &in); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Orders []struct{ ID, Status string }
	}
	if err := e.api(t.Context(), "GET", "/admin/sales/"+e.sale+"/orders", in.Token, nil, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Orders) != 1 || list.Orders[0].ID != orderID || list.Orders[0].Status != "paid" {
		t.Errorf("the engine has the orders %+v, want %s, paid", list.Orders, orderID)
	}
	row := regexp.MustCompile(`(?s)<td[^>]*>` + orderID + `</td>.*?</tr>`).FindString(get(t, e.shop+"/orders"))
	for _, part := range []string{">shop:ann<", ">CNY 9.90<", ">paid<"} {
		if !strings.Contains(row, part) {
			t.Errorf("the shop has no %s in %q", part, row)
		}
	}
	if page := get(t, e.shop+"/"); !strings.Contains(page, "99 left") {
		t.Error("the shop's banner does not show 99 units")
	}
}

// With -once the program ends after the purchase; both processes and their data are gone.
func TestOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	if err := run(t.Context(), options{shopAddr: "127.0.0.1:0", engineAddr: "127.0.0.1:0", source: "../../..", out: &out, logs: t.Output()}, true); err != nil {
		t.Fatalf("%v, after\n%s", err, &out)
	}
	for _, name := range []string{"shop", "engine"} {
		address := regexp.MustCompile(`the ` + name + `: (http://\S+)`).FindStringSubmatch(out.String())
		if address == nil {
			t.Fatalf("the address of the %s is not printed:\n%s", name, &out)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			t.Errorf("the %s still answers", name)
		}
	}
}
