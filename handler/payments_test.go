package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/internal/sandbox"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// notedCallbacks is a database that notes the callbacks. Nothing else is asked of it.
type notedCallbacks struct {
	service.PaymentStore
	callbacks []model.Report
}

func (n *notedCallbacks) Payment(_ context.Context, id string) (model.Payment, bool, error) {
	return model.Payment{ID: id, Currency: "CNY"}, true, nil
}

func (n *notedCallbacks) ApplyReport(_ context.Context, _ string, report model.Report, _ bool) (model.Order, bool, model.Verdict, error) {
	n.callbacks = append(n.callbacks, report)
	order := model.Order{ID: "order", SaleID: benchSale, Status: model.OrderPaid, CreatedAt: time.Unix(0, 0)}
	return order, false, model.Accepted, nil
}

// Nothing unsigned reaches the database. A callback that reaches it is what the body says, each field once and within its
// bounds.
func FuzzCallback(f *testing.F) {
	payment := `{"payment_id":"` + strings.Repeat("A", model.PaymentIDLength) + `","provider_txn_id":`
	for _, body := range []string{
		payment + `"txn-1","status":"succeeded","amount_cents":990}`, payment + `"txn-1","status":"failed","amount_cents":-1}`,
		payment + `"txn 1","status":"succeeded","amount_cents":990}`, payment + `"txn-1","status":"SUCCEEDED","amount_cents":990}`,
		payment + `"txn-1","status":"succeeded","status":"failed","amount_cents":990}`,
		payment + `"txn-1","status":"succeeded","amount_cents":9.9e2}`,
		payment + `"txn-1","status":"succeeded","amount_cents":9223372036854775808}`,
		`{"payment_id":"' OR 1=1","provider_txn_id":"txn-1","status":"succeeded","amount_cents":990}`,
		`{}`, ``, `null`, `[`, `{"payment_id":{}}`, "\xff",
	} {
		f.Add([]byte(body), "application/json", true)
		f.Add([]byte(body), "application/json; charset=utf-8", false)
	}
	f.Add([]byte(`{}`), "text/plain", true)
	f.Fuzz(func(t *testing.T, body []byte, contentType string, genuine bool) {
		store, s := &notedCallbacks{}, newShop(t)
		s.api.Payments.Service = &service.Payments{Provider: s.api.Payments.Sandbox.(service.Provider), Store: store, Catalog: s.offers.Catalog}
		timestamp, secret := strconv.FormatInt(time.Now().Unix(), 10), benchSecret
		if !genuine {
			secret = []byte("another secret")
		}
		r := s.request(http.MethodPost, "/api/v1/payments/callback", string(body),
			"X-Timestamp", timestamp, "X-Signature", sandbox.Sign(secret, timestamp, body))
		r.Header["Content-Type"] = []string{contentType}
		w := s.serve(r)
		switch w.Code {
		case http.StatusOK:
		case http.StatusUnauthorized, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType:
			check.Same(t, "callbacks in the database after a refusal", len(store.callbacks), 0)
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
		fields := []any{said["payment_id"], said["provider_txn_id"], said["status"]}
		check.Same(t, "fields", fields, []any{cb.PaymentID(), cb.TxnID(), string(cb.Result())})
		amount, given := said["amount_cents"].(json.Number)
		if exact, ok := new(big.Rat).SetString(amount.String()); given && (!ok || exact.Cmp(new(big.Rat).SetInt64(cb.Money().Cents)) != 0) {
			t.Errorf("the amount %s became %d", amount, cb.Money().Cents)
		}
		if !model.ValidID(cb.PaymentID(), model.PaymentIDLength) || !model.ValidUserID(cb.TxnID()) || len(said) > 4 {
			t.Errorf("%q was accepted as %+v", body, cb)
		}
	})
}
