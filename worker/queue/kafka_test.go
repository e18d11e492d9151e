package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func kafka(t *testing.T, cluster *kfake.Cluster, instance string) *Kafka {
	t.Helper()
	q, err := NewKafka(cluster.ListenAddrs(), instance, slog.New(slog.DiscardHandler))
	check.NoError(t, err)
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	check.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Missing topics are created; a topic that an operator has created stays as it is.
func TestTopicsAreMade(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(3, attempts+".dead"))
	q := kafka(t, c, "here")
	saleID := model.NewSaleID()
	for range 2 {
		q.ready.Store(false)
		check.NoError(t, q.Publish(t.Context(), saleID, []model.Entry{entry(saleID, "u-1", "key", 1)}))
	}
	made, operators := len(c.PartitionInfos(attempts)), len(c.PartitionInfos(attempts+".dead"))
	check.Same(t, "partitions of both topics", []int{made, operators}, []int{partitions, 3})
	if kept := c.TopicInfo(attempts).Configs["retention.ms"]; kept == nil || *kept != fmt.Sprint(retention.Milliseconds()) {
		t.Errorf("messages are kept for %v ms", kept)
	}
}

// An operator deletes the topic. It is created again, and consumers find it.
func TestTopicDeleted(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	q := kafka(t, c, "here")
	ctx, cancel := context.WithTimeout(t.Context(), check.Patience)
	defer cancel()
	heard, ended := make(chan string, 1000), make(chan struct{})
	go func() { // as the relay does
		defer close(ended)
		for ctx.Err() == nil {
			_ = q.Consume(ctx, func(_ context.Context, _ string, entries []model.Entry) error {
				for _, e := range entries {
					heard <- e.IdempotencyKey
				}
				return nil
			})
		}
	}()
	saleID := model.NewSaleID()
	publish := func(ctx context.Context, key string) error {
		return q.Publish(ctx, saleID, []model.Entry{entry(saleID, "u-1", key, 1)})
	}
	hear := func(want string) { // a message may be delivered several times
		t.Helper()
		for key := ""; key != want; {
			key = check.Receive(t, "the message "+want, heard)
		}
	}
	check.NoError(t, publish(ctx, "before"))
	hear("before")
	check.NoError(t, c.DeleteTopic(attempts))
	check.Eventually(t, "messages are accepted again", func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return publish(ctx, "after") == nil
	})
	hear("after")
	cancel()
	<-ended
}

// All messages of a sale are in one partition, whichever instance publishes them.
func TestSalesKeepTheirPartition(t *testing.T) {
	c := cluster(t)
	saleID := model.NewSaleID()
	for i := range 8 { // without the key each instance would choose one of twelve partitions
		q := kafka(t, c, fmt.Sprint("instance-", i))
		check.NoError(t, q.Publish(t.Context(), saleID, []model.Entry{entry(saleID, "u-1", "key", i)}))
	}
	used := 0
	for _, p := range c.PartitionInfos(attempts) {
		if p.HighWatermark > 0 {
			used++
		}
	}
	check.Same(t, "partitions of one sale", used, 1)
}

// Consumers come and go while messages are settled, and no message is lost: a consumer commits its batch before another
// consumer gets the partition, or the other consumer gets the messages again.
func TestRebalanceLosesNothing(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), check.Patience)
	defer cancel()
	const sales, each = 30, 10
	q := kafka(t, c, "here")
	seen := make(chan string, sales*each*4)
	settle := func(_ context.Context, _ string, entries []model.Entry) error {
		for _, e := range entries {
			seen <- e.ID
		}
		return nil
	}
	ended := make(chan error, 4)
	short, leave := context.WithCancel(ctx)
	defer leave()
	for i, life := range []context.Context{ctx, short, ctx} {
		other := kafka(t, c, fmt.Sprint("instance-", i))
		go func() { ended <- other.Consume(life, settle) }()
	}
	flaky := kafka(t, c, "flaky")
	go func() {
		ended <- flaky.Consume(ctx, func(context.Context, string, []model.Entry) error { return io.ErrUnexpectedEOF })
	}()
	want := map[string]bool{}
	for i := range sales {
		saleID := model.NewSaleID()
		for j := range each {
			e := entry(saleID, "u-1", fmt.Sprint("key-", j), j)
			want[e.ID] = true
			check.NoError(t, q.Publish(ctx, saleID, []model.Entry{e}))
		}
		if i == sales/2 {
			leave()
		}
	}
	for len(want) > 0 {
		select {
		case id := <-seen:
			delete(want, id)
		case <-ctx.Done():
			t.Fatalf("%d messages were lost", len(want))
		}
	}
	cancel()
	for range 4 {
		// A commit may time out on a busy machine. Then the consumer ends, and another consumer gets the messages again.
		if err := <-ended; err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}
