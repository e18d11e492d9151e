package gate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// FuzzEntry holds an entry as admit.lua writes it against one as an older program wrote it, field by field: both are
// read alike, and what is taken can be settled.
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
		parts := []string{id, user, n, hash, epoch, instance, key}
		fields := map[string]any{}
		for i, name := range entryFields {
			fields[name] = parts[i]
		}
		apart, ok := parseEntry(sale, redis.XMessage{ID: "1-1", Values: fields})
		text := strings.Join(parts, " ")
		packed, packedOK := parseEntry(sale, redis.XMessage{ID: "1-1", Values: map[string]any{"attempt": text}})
		if strings.Count(text[:len(text)-len(key)], " ") == len(entryFields)-1 && (ok != packedOK || ok && apart != packed) {
			t.Errorf("%q is read as %+v, %t; field by field as %+v, %t", text, packed, packedOK, apart, ok)
		}
		for _, e := range []struct {
			model.Entry
			ok bool
		}{{apart, ok}, {packed, packedOK}} {
			if !e.ok {
				continue
			}
			if e.Quantity < 1 || model.SaleOf(e.ID) != sale || !model.ValidUserID(e.UserID) || e.RequestKey == "" || e.RequestHash == "" || e.SaleID != sale {
				t.Errorf("%q was taken as %+v", text, e.Entry)
			}
			if strings.Contains(e.ID+e.RequestHash+e.Instance, " ") {
				continue // nothing that the engine writes
			}
			again := fmt.Sprintf("%s %s %d %s %d %s %s", e.ID, e.UserID, e.Quantity, e.RequestHash, e.Epoch, e.Instance, e.RequestKey)
			if same, ok := parseEntry(sale, redis.XMessage{ID: "1-1", Values: map[string]any{"attempt": again}}); !ok || same != e.Entry {
				t.Errorf("%+v, written again, is %+v, %t", e.Entry, same, ok)
			}
		}
	})
}
