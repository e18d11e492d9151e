package model_test

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Buckets follow each other without a gap or an overlap, and a bucket's beginning lies in the same bucket.
func TestBucket(t *testing.T) {
	starts := time.UnixMilli(1_800_000_000_123).UTC()
	type row struct {
		after time.Duration
		want  string
	}
	check.Each(t, map[string]row{
		"at the start":              {0, "0s 1s"},
		"in the first second":       {999 * time.Millisecond, "0s 1s"},
		"in the tenth minute":       {10*time.Minute - 1, "9m59s 1s"},
		"after ten minutes":         {10*time.Minute + 59*time.Second, "10m0s 1m0s"},
		"at the end of a day":       {24*time.Hour - 1, "23h59m0s 1m0s"},
		"after a day":               {24*time.Hour + time.Minute, "24h0m0s 1h0m0s"},
		"after thirty days":         {31*24*time.Hour + time.Hour, "744h0m0s 24h0m0s"},
		"just before the start":     {-1, "-1m0s 1m0s"},
		"a minute before":           {-time.Minute, "-1m0s 1m0s"},
		"a day before":              {-24 * time.Hour, "-24h0m0s 1m0s"},
		"more than a day before":    {-24*time.Hour - 1, "-25h0m0s 1h0m0s"},
		"more than a month before":  {-30*24*time.Hour - 1, "-744h0m0s 24h0m0s"},
		"exactly thirty days later": {30 * 24 * time.Hour, "720h0m0s 24h0m0s"},
	}, func(t *testing.T, tc row) {
		begins, length := model.Bucket(starts, starts.Add(tc.after))
		check.Same(t, "bucket", fmt.Sprint(begins.Sub(starts), " ", length), tc.want)
		again, same := model.Bucket(starts, begins)
		check.Same(t, "bucket of its beginning", fmt.Sprint(again.Sub(starts), " ", same), tc.want)
	})
}
