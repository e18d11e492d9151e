package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// notedCallbacks is a database that keeps every callback in mind.
type notedCallbacks struct{ callbacks []model.Callback }

func (n *notedCallbacks) StartPayment(context.Context, string, string, string) (model.Payment, model.Verdict, error) {
	return model.Payment{}, model.NotFound, nil
}

func (n *notedCallbacks) ApplyCallback(_ context.Context, _ string, cb model.Callback) (order model.Order, reinstated bool, verdict model.Verdict, err error) {
	n.callbacks = append(n.callbacks, cb)
	return model.Order{ID: "order", SaleID: benchSale, Status: model.OrderPaid, CreatedAt: time.Unix(0, 0)}, false, model.Accepted, nil
}

// FuzzCallback sends a payment provider's callback with whatever body. Nothing unsigned reaches the database, and what
// reaches it is what the body says, each field once and in its bounds.
func FuzzCallback(f *testing.F) {
	payment := strings.Repeat("A", model.PaymentIDLength)
	for _, body := range []string{
		`{"payment_id":"` + payment + `","provider_txn_id":"txn-1","status":"succeeded","amount_cents":990}`,
		`{"payment_id":"` + payment + `","provider_txn_id":"txn-1","status":"failed","amount_cents":-1}`,
		`{"payment_id":"` + payment + `","provider_txn_id":"txn 1","status":"succeeded","amount_cents":990}`,
		`{"payment_id":"' OR 1=1","provider_txn_id":"txn-1","status":"succeeded","amount_cents":990}`,
		`{"payment_id":"` + payment + `","provider_txn_id":"txn-1","status":"SUCCEEDED","amount_cents":990}`,
		`{"payment_id":"` + payment + `","provider_txn_id":"txn-1","status":"succeeded","status":"failed","amount_cents":990}`,
		`{"payment_id":"` + payment + `","provider_txn_id":"txn-1","status":"succeeded","amount_cents":9.9e2}`,
		`{"payment_id":"` + payment + `","provider_txn_id":"txn-1","status":"succeeded","amount_cents":9223372036854775808}`,
		`{}`, ``, `null`, `[`, `{"payment_id":{}}`, "\xff",
	} {
		f.Add([]byte(body), "application/json", true)
		f.Add([]byte(body), "application/json; charset=utf-8", false)
	}
	f.Add([]byte(`{}`), "text/plain", true)
	f.Fuzz(func(t *testing.T, body []byte, contentType string, genuine bool) {
		store := &notedCallbacks{}
		api := benchAPI(t, false)
		api.Payments = &service.Payments{Store: store, Catalog: api.Catalog, Secret: benchSecret}
		router, err := Router(api)
		if err != nil {
			t.Fatal(err)
		}
		timestamp := strconv.FormatInt(time.Now().Unix(), 10)
		secret := benchSecret
		if !genuine {
			secret = []byte("somebody else's")
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/payments/callback", bytes.NewReader(body))
		r.Header["Content-Type"] = []string{contentType}
		r.Header.Set("X-Timestamp", timestamp)
		r.Header.Set("X-Signature", service.SignCallback(secret, timestamp, body))
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)

		switch w.Code {
		case http.StatusOK:
		case http.StatusUnauthorized, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
			if len(store.callbacks) > 0 {
				t.Errorf("%d, and yet %+v reached the database", w.Code, store.callbacks)
			}
			return
		default:
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
		var said map[string]any
		exact := json.NewDecoder(bytes.NewReader(body))
		exact.UseNumber()
		if err := exact.Decode(&said); err != nil || !genuine || len(store.callbacks) != 1 {
			t.Fatalf("%q, genuine: %t: %+v, %v", body, genuine, store.callbacks, err)
		}
		cb := store.callbacks[0]
		status := map[bool]string{true: "succeeded", false: "failed"}[cb.Succeeded]
		amount, given := said["amount_cents"].(json.Number)
		if said["payment_id"] != cb.PaymentID || said["provider_txn_id"] != cb.ProviderTxnID || said["status"] != status || given && amount.String() != strconv.FormatInt(cb.AmountCents, 10) && amount != "-0" {
			t.Errorf("%q became %+v", body, cb)
		}
		if !model.ValidID(cb.PaymentID, model.PaymentIDLength) || !model.ValidUserID(cb.ProviderTxnID) || len(said) > 4 {
			t.Errorf("%q was taken as %+v", body, cb)
		}
	})
}

// FuzzPrefer holds that no header makes a buyer wait for longer than a time that can be told.
func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{"", "wait=2", "wait=2, respond-async", "wait=-1", "wait=65536", "WAIT = 7 ", "wait", "wait=0", "wait=1,wait=x", ";;,,==", "respond-async=false"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, ok := parsePrefer([]string{header})
		if ok && (p.Wait < 0 || p.Wait > 65535*time.Second || p.Wait%time.Second != 0) {
			t.Errorf("%q: %+v", header, p)
		}
		if lower := strings.ToLower(header); ok && p.Async && !strings.Contains(lower, "respond-async") && !strings.Contains(lower, "wait") {
			t.Errorf("%q: %+v", header, p)
		}
	})
}

// FuzzLanguage holds that every answer of a refusal is one JSON object, whatever language was asked for.
func FuzzLanguage(f *testing.F) {
	for _, seed := range []string{"", "zh", "en", "zh-CN,zh;q=0.9,en;q=0.8", "en;q=0,zh;q=0.1", "*", "zh;q=nan", "zh;q=-1", "zh;q=1e999", ";q=1,zh", "ZH-hant"} {
		f.Add(seed)
	}
	api := benchAPI(f, true)
	router, err := Router(api)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := purchaseRequest(t, api, `{"quantity":1}`)
		r.Header["Accept-Language"] = []string{header}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		var doc struct{ Code, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != http.StatusConflict || doc.Code != "sold_out" {
			t.Fatalf("%q: %d %s, %v", header, w.Code, w.Body, err)
		}
		chinese := w.Header().Get("Content-Language") == "zh"
		if chinese != strings.Contains(doc.Detail, "售罄") && chinese != strings.Contains(doc.Detail, "不足") || chinese && !strings.Contains(strings.ToLower(header), "zh") {
			t.Errorf("%q: %s %s", header, w.Header(), w.Body)
		}
	})
}
