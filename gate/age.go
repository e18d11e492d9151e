package gate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// QueueAge returns how long ago, by Redis's clock, the oldest entry in the streams of these gates was admitted. It
// returns 0 if the streams have no entries, and an error if Redis does not answer.
func (g *Gate) QueueAge(ctx context.Context, gates ...model.GateRef) (time.Duration, error) {
	var tags []string
	for _, gate := range gates {
		tags = append(tags, tagsOf(gate)...)
	}
	firsts := make([]*redis.XMessageSliceCmd, len(tags))
	var now *redis.TimeCmd
	_, err := g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, tag := range tags {
			firsts[i] = p.XRangeN(ctx, streamKey(tag), "-", "+", 1)
		}
		now = p.Time(ctx) // after the reads, so that no entry is newer
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the age of the queue: %w", err)
	}
	var oldest time.Duration
	for _, first := range firsts {
		for _, entry := range first.Val() {
			ms, _, _ := strings.Cut(entry.ID, "-")
			admitted, err := strconv.ParseInt(ms, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("ask for the age of the queue: entry %q: %w", entry.ID, err)
			}
			oldest = max(oldest, now.Val().Sub(time.UnixMilli(admitted)))
		}
	}
	return oldest, nil
}
