package gate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// FuzzEntry: an entry that is accepted can be settled, and is read the same when it is written again.
func FuzzEntry(f *testing.F) {
	const sale = "AAAAAAAAAAAAAAAA"
	id := ids.Derive("u-1", sale, "key")
	f.Add(id, "u-1", "1", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "u-1", "2", model.HashRequest(2), "7", "here", "a key with spaces")
	f.Add(id, "u-1", "-5", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "u-1", "0", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "u-1", "9223372036854775808", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "u-1", "1.5", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "u-1", "+1", model.HashRequest(1), "x", "here", "key")
	f.Add(id[:47], "u-1", "1", model.HashRequest(1), "7", "here", "key")
	f.Add(strings.ToLower(id), "u-1", "1", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "u\n1", "1", model.HashRequest(1), "7", "here", "key")
	f.Add(id, "", "1", "", "7", "", "")
	f.Fuzz(func(t *testing.T, id, user, n, hash, epoch, instance, key string) {
		text := strings.Join([]string{id, user, n, hash, epoch, instance, key}, " ")
		e, ok := parseEntry(sale, redis.XMessage{ID: "1-1", Values: map[string]any{"attempt": text}})
		if !ok {
			return
		}
		if e.Quantity < 1 || model.SaleOf(e.ID) != sale || !model.ValidUserID(e.UserID) || e.RequestKey == "" || e.RequestHash == "" || e.SaleID != sale {
			t.Errorf("%q was taken as %+v", text, e)
		}
		again := fmt.Sprintf("%s %s %d %s %d %s %s", e.ID, e.UserID, e.Quantity, e.RequestHash, e.Epoch, e.Instance, e.RequestKey)
		if same, ok := parseEntry(sale, redis.XMessage{ID: "1-1", Values: map[string]any{"attempt": again}}); !ok || same != e {
			t.Errorf("%+v, written again, is %+v, %t", e, same, ok)
		}
	})
}
