package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashsale/model"
)

const (
	// partitions is how many partitions a new topic has, and so the most consumers that can get messages.
	partitions = 12
	// retention is how long a new topic keeps its messages or dead letters.
	retention = 24 * time.Hour
	// kafkaSession is how long a consumer may send no heartbeat before the broker removes it. By default brokers accept no less.
	kafkaSession = 6 * time.Second
	// kafkaSetup bounds the search for the brokers and the making of topics.
	kafkaSetup = 5 * time.Second
	// kafkaCall bounds requests that are finished although ctx has ended.
	kafkaCall = time.Second
)

// Kafka is a worker.Queue on a Kafka topic. Messages are keyed by sale. The consumers form one group, and commit the offsets of
// settled messages.
type Kafka struct {
	brokers  []string
	instance string
	name     string // of the topic and the group
	log      *slog.Logger
	producer *kgo.Client
	ready    atomic.Bool // the topics exist
}

// NewKafka returns the queue of one instance. Brokers are given as host:port, and may start later. The caller must close it.
func NewKafka(brokers []string, instance string, log *slog.Logger) (*Kafka, error) {
	q := &Kafka{brokers: brokers, instance: instance, name: attempts, log: log}
	var err error
	// A cancelled publish may still reach the topic, although its entries are then settled without the queue. That is harmless,
	// since an attempt is decided once.
	if q.producer, err = q.client(kgo.AllowIdempotentProduceCancellation()); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Kafka) client(opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(q.brokers...), kgo.ClientID("flashsale-"+q.instance))...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return client, nil
}

func (q *Kafka) deadName() string { return q.name + ".dead" }

// Publish implements worker.Queue.
func (q *Kafka) Publish(ctx context.Context, saleID string, entries []model.Entry) error {
	records := make([]*kgo.Record, len(entries))
	for i, e := range entries {
		records[i] = &kgo.Record{Topic: q.name, Key: []byte(saleID), Value: encode(e)}
	}
	return q.produce(ctx, records)
}

func (q *Kafka) produce(ctx context.Context, records []*kgo.Record) error {
	if err := q.makeTopics(ctx); err != nil {
		return err
	}
	if err := q.producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) { // the topic was deleted
			q.ready.Store(false)
			q.producer.PurgeTopicsFromProducing(q.name, q.deadName())
		}
		return fmt.Errorf("publish to Kafka: %w", err)
	}
	return nil
}

func (q *Kafka) makeTopics(ctx context.Context) error {
	if q.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaSetup)
	defer cancel()
	kept := fmt.Sprint(retention.Milliseconds())
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{q.name, q.deadName()} {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, -1 // -1: the brokers' default
		topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: &kept}}
		req.Topics = append(req.Topics, topic)
	}
	reply, err := req.RequestWith(ctx, q.producer)
	if err != nil {
		return fmt.Errorf("make the topics of Kafka: %w", err)
	}
	for _, topic := range reply.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("make the topic %s of Kafka: %w", topic.Topic, err)
		}
	}
	q.ready.Store(true)
	return nil
}

// Consume implements worker.Queue. A rebalance waits until the batch that was polled is settled and committed.
func (q *Kafka) Consume(ctx context.Context, settle settleFunc) error {
	if err := q.makeTopics(ctx); err != nil {
		return err
	}
	client, err := q.client(
		kgo.ConsumerGroup(q.name), kgo.ConsumeTopics(q.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.SessionTimeout(kafkaSession), kgo.HeartbeatInterval(kafkaSession/3),
	)
	if err != nil {
		return err
	}
	defer func() {
		client.AllowRebalance()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), kafkaCall)
		defer cancel()
		_ = client.LeaveGroupContext(ctx) // or its partitions stay idle until kafkaSession is over
		client.Close()
	}()
	for {
		fetches := client.PollRecords(ctx, batchMost)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume from Kafka: %w", err)
		}
		if err := q.handle(ctx, client, fetches.Records(), settle); err != nil {
			return err
		}
		client.AllowRebalance()
	}
}

// handle settles a batch of records, makes unreadable ones dead letters, and commits the batch.
func (q *Kafka) handle(ctx context.Context, client *kgo.Client, records []*kgo.Record, settle settleFunc) error {
	_, dead, err := handOn(ctx, records, func(r *kgo.Record) []byte { return r.Value }, settle, q.log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), kafkaCall)
	defer cancel()
	if len(dead) > 0 {
		var letters []*kgo.Record
		for _, r := range dead {
			letters = append(letters, &kgo.Record{Topic: q.deadName(), Key: r.Key, Value: r.Value})
		}
		if err := q.produce(ctx, letters); err != nil {
			return err
		}
	}
	if err := client.CommitRecords(ctx, records...); err != nil {
		return fmt.Errorf("commit to Kafka: %w", err)
	}
	return nil
}

// Ping returns an error if no broker answers.
func (q *Kafka) Ping(ctx context.Context) error { return q.producer.Ping(ctx) }

// Close closes the connections of the producer.
func (q *Kafka) Close() error {
	q.producer.Close()
	return nil
}
