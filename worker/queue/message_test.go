package queue

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"flashsale/model"
)

var orderIDs = model.NewOrderIDs([]byte("a key for tests"))

// entry is an entry as the gate's stream holds it.
func entry(saleID, user, key string, n int) model.Entry {
	return model.Entry{
		Attempt: model.Attempt{
			ID: orderIDs.Derive(user, saleID, key), SaleID: saleID, UserID: user, Quantity: 1,
			IdempotencyKey: key, Shards: 1,
		},
		StreamID: fmt.Sprint("1700000000000-", n), Epoch: 3, Instance: "here",
	}
}

// A message keeps all fields of an entry, whatever its idempotency key is.
func TestMessagesKeepAll(t *testing.T) {
	saleID := model.NewSaleID()
	large := entry(saleID, strings.Repeat("u", 64), "key", 1)
	large.Quantity, large.Epoch = math.MaxInt32, math.MaxInt64
	large.StreamID = "18446744073709551615-18446744073709551615"
	inCampaign := entry(saleID, "u-1", "key", 4)
	inCampaign.CampaignID = model.NewSaleID()
	for name, want := range map[string]model.Entry{
		"of a campaign":             inCampaign,
		"plain":                     entry(saleID, "u-1", "key", 0),
		"a key of many words":       entry(saleID, "u-1", " two  words ", 1),
		"a key of any bytes":        entry(saleID, "u-1", "1 \n\x00\xff\"抢购", 2),
		"as large as may be":        large,
		"a key longer than columns": entry(saleID, "u-1", strings.Repeat("k", 500), 3),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := decode(encode(want)); err != nil || got != want {
				t.Errorf("%+v became %+v, %v", want, got, err)
			}
		})
	}
}

// A message that differs from what encode writes is unreadable.
func TestUnreadableMessages(t *testing.T) {
	good := string(encode(entry(model.NewSaleID(), "u-1", "key", 7)))
	if _, err := decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	messages := []string{"", "nonsense", `{"id": 1}`, good[:strings.LastIndex(good, " ")]}
	for part, values := range map[int][]string{
		0: {"2"},                                                    // the version
		1: {"-", "1700000000000", "+1-1", "18446744073709551616-0"}, // the stream id
		2: {"1.5", "9223372036854775808"},                           // the epoch
		4: {strings.Repeat("a", model.OrderIDLength), "ABC"},        // the order id
		5: {"", "abc", "--"},                                        // the campaign
		6: {"0", "-1", "17", "01", "x"},                             // the number of shards of the gate
		7: {"ü"},                                                    // the user
		8: {"0", "-1", "2147483648"},                                // the quantity
		9: {"", strings.Repeat("k", maxMessage)},                    // the idempotency key
	} {
		for _, value := range values {
			all := strings.SplitN(good, " ", fields)
			all[part] = value
			messages = append(messages, strings.Join(all, " "))
		}
	}
	for _, message := range messages {
		if got, err := decode([]byte(message)); !errors.Is(err, errUnreadable) || got != (model.Entry{}) {
			t.Errorf("%.200q was read as %+v, %v", message, got, err)
		}
	}
}

// Any message is either unreadable, or the one form of an entry that can be settled.
func FuzzDecode(f *testing.F) {
	f.Add(encode(entry(model.NewSaleID(), "u-1", "key", 1)))
	f.Add(encode(entry(model.NewSaleID(), "u-1", "two words", 2)))
	f.Add([]byte("2 1-1 1 1 here"))
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := decode(message)
		if err != nil {
			return
		}
		if !e.Valid() || !bytes.Equal(encode(e), message) || e.SaleID != model.SaleOf(e.ID) {
			t.Errorf("%q was read as %+v", message, e)
		}
	})
}
