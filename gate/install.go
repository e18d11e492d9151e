package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"flashsale/internal/observe"
	"flashsale/model"
)

const (
	// stagingTTL is how long staged keys are kept after the last write, so that those of a rebuild that died disappear.
	stagingTTL = time.Minute
	// page is about how many entries or fields one command reads, so that no command takes long.
	page = 1000
	// pagesAtOnce is how many pages are sent at the same time: Redis works on one while the engine encodes the next.
	pagesAtOnce = 2
	// nobody is a field that a staged hash gets first, so that there is a key to rename even without buyers. A staged hash that has
	// expired and was created again lacks the field, and is not installed.
	nobody = ""
	// asTable is the value of the field nobody. By default, a value of more than 64 bytes makes Redis store a hash as a table.
	// Redis finds a field in a table faster than in the compact form of a small hash.
	asTable = "0----------------------------------------------------------------"
)

// StreamLengths returns the number of entries in the stream of each shard of a gate.
func (g *Gate) StreamLengths(ctx context.Context, gate model.GateRef) (lengths []int64, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.MeasureStream})
	defer func() { end(err) }()
	lengths = make([]int64, gate.Shards)
	return lengths, eachShard(gate, "measure the stream", func(shard int, tag string) (err error) {
		lengths[shard], err = g.client.XLen(ctx, streamKey(tag)).Result()
		return err
	})
}

// Install puts an open gate of this epoch, with these contents, in the place of a closed or missing one. lengths are the lengths
// of the streams, read before the snapshot of the contents was taken. Install returns model.ErrStreamMoved if an entry has left
// a stream or the staged keys have expired; and model.ErrNewerGate if a gate of this epoch is open, a newer one exists or is to
// come, or an installed shard is gone. bad has the texts of unreadable entries that were deleted, even after an error.
//
// A closed gate's streams can only shrink, so a stream of the same length is unchanged. Units and ids are sent in pages and put
// in place by RENAME, so that many orders need neither much memory of the engine nor a long pause of Redis.
func (g *Gate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.Install})
	defer func() { end(err) }()
	offer := c.Offer()
	s := &staging{
		gate: g, epoch: epoch, name: fmt.Sprintf("%d-%s", epoch, rand.Text()), offer: offer, tags: tagsOf(offer.GateRef()),
		lengths: slices.Clone(lengths), inflight: make([]int64, len(lengths)),
	}
	defer func() {
		if err != nil { // do not wait for the expiry: to free a large key at once may block Redis
			err = errors.Join(err, eachShard(offer.GateRef(), "drop what was staged", func(shard int, _ string) error {
				return g.client.Unlink(context.WithoutCancel(ctx), s.units(shard)).Err()
			}))
		}
	}()
	if err := s.send(ctx, func(p redis.Pipeliner, shard int) { p.HSet(ctx, s.units(shard), nobody, asTable) }); err != nil {
		return nil, err
	}
	err = stage(ctx, s, c.Buyers(ctx), func(b model.Buyer) (userID, field string, value any) { return b.UserID, b.UserID, b.Units })
	if err != nil {
		return nil, err
	}
	staging, staged := g.observe.Begin(ctx, observe.Step{Name: observe.StageIDs})
	err = stage(staging, s, c.Known(staging), func(k model.Known) (userID, field string, value any) {
		return k.UserID, idField(k.ID), k.Quantity
	})
	if staged(err); err != nil {
		return nil, err
	}
	for shard := range s.tags {
		unread, err := s.addEntries(ctx, shard)
		bad = append(bad, unread...)
		if err != nil {
			return bad, err
		}
	}
	return bad, s.install(ctx)
}

// staging gathers the contents of a new gate in keys of its own.
type staging struct {
	gate     *Gate
	epoch    int64
	name     string // in the staged keys' names; each try has its own, so that late commands of another try do not change the keys
	offer    model.Offer
	tags     []string // of the gate's shards
	lengths  []int64  // how many entries each stream must have; those that addEntries deletes are subtracted
	inflight []int64  // units of the entries that were added, by shard
}

func (s *staging) units(shard int) string { return stagedKey(unitsKey(s.tags[shard]), s.name) }

// send sends commands for each shard, and renews the expiry of the staged keys. It returns model.ErrStreamMoved if the length of
// a stream differs from s.lengths.
func (s *staging) send(ctx context.Context, commands func(p redis.Pipeliner, shard int)) error {
	lengths := make([]*redis.IntCmd, len(s.tags))
	_, err := s.gate.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard, tag := range s.tags {
			commands(p, shard)
			p.Expire(ctx, s.units(shard), stagingTTL)
			lengths[shard] = p.XLen(ctx, streamKey(tag))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	for shard, length := range lengths {
		if length.Val() != s.lengths[shard] {
			return model.ErrStreamMoved
		}
	}
	return nil
}

// stage writes rows into the staged hashes, up to pagesAtOnce pages at the same time. The function "row" returns the field and
// the value of a row, and the user to whose shard the row goes.
func stage[T any](ctx context.Context, s *staging, pages iter.Seq2[[]T, error], row func(T) (userID, field string, value any)) error {
	adding, all := errgroup.WithContext(ctx)
	adding.SetLimit(pagesAtOnce)
	for page, err := range pages {
		if all.Err() != nil {
			break
		}
		adding.Go(func() error {
			if err != nil {
				return err
			}
			fields := make([][]any, len(s.tags))
			for shard := range fields {
				fields[shard] = make([]any, 0, 2*len(page)/len(fields))
			}
			for _, r := range page {
				userID, field, value := row(r)
				home := homeOf(userID, len(s.tags))
				fields[home] = append(fields[home], field, value)
			}
			return s.send(all, func(p redis.Pipeliner, shard int) {
				if len(fields[shard]) > 0 {
					p.HSet(all, s.units(shard), fields[shard]...)
				}
			})
		})
	}
	return cmp.Or(adding.Wait(), ctx.Err())
}

// addEntries reads the stream of a shard. It deletes settled entries and unreadable ones, whose texts it returns in bad, and
// adds the others to the staged hash. It may return model.ErrStreamMoved.
func (s *staging) addEntries(ctx context.Context, shard int) (bad []string, err error) {
	for start, more := "-", true; more; {
		messages, err := s.gate.client.XRangeN(ctx, streamKey(s.tags[shard]), start, "+", page).Result()
		if err != nil {
			return bad, fmt.Errorf("read the whole stream: %w", err)
		}
		entries, unread, err := s.gate.parse(ctx, s.offer.GateRef(), s.tags[shard], messages)
		bad = append(bad, unread...)
		s.lengths[shard] -= int64(len(unread))
		if err == nil && len(entries) > 0 {
			err = s.addPage(ctx, shard, entries)
		}
		if err != nil {
			return bad, err
		}
		if more = len(messages) == page; more {
			start = "(" + messages[page-1].ID
		}
	}
	return bad, nil
}

// addPage handles one page for addEntries. An entry counts as settled if its id is there already: the database has decided the
// attempt, or an earlier entry has the same id.
func (s *staging) addPage(ctx context.Context, shard int, entries []model.Entry) error {
	fields := make([]string, 0, 2*len(entries))
	for _, e := range entries {
		fields = append(fields, idField(e.ID), e.UserID)
	}
	var staged *redis.SliceCmd
	err := s.send(ctx, func(p redis.Pipeliner, at int) {
		if at == shard {
			staged = p.HMGet(ctx, s.units(shard), fields...)
		}
	})
	if err != nil {
		return err
	}
	units, settled := map[string]any{}, []string(nil) // by field; with what was staged before
	for i, value := range staged.Val() {
		if value != nil {
			units[fields[i]] = number(value)
		}
	}
	for _, e := range entries {
		if units[idField(e.ID)] != nil {
			settled = append(settled, e.StreamID)
			continue
		}
		before, _ := units[e.UserID].(int64)
		units[e.UserID], units[idField(e.ID)] = before+int64(e.Quantity), e.Quantity
		s.inflight[shard] += int64(e.Quantity)
	}
	if len(settled) > 0 {
		s.lengths[shard] -= int64(len(settled))
		if err := s.gate.client.XDel(ctx, streamKey(s.tags[shard]), settled...).Err(); err != nil {
			return fmt.Errorf("delete settled entries: %w", err)
		}
	}
	return s.send(ctx, func(p redis.Pipeliner, at int) {
		if at == shard {
			p.HSet(ctx, s.units(shard), units)
		}
	})
}

// install puts the staged keys in place, each shard with its share of the units left. Several shards are opened after all are
// installed: until then no stream grows, so that the rebuild can start again. The errors are those of Install.
func (s *staging) install(ctx context.Context) error {
	left, open := s.offer.Stock.Available, 0
	for _, n := range s.inflight {
		left -= n
	}
	if len(s.tags) == 1 {
		open = 1
	}
	err := eachShard(s.offer.GateRef(), "install the gate", func(shard int, tag string) error {
		keys := append(keysOf(tag), s.units(shard))
		args := append([]any{s.epoch, s.lengths[shard], expiry(s.offer.Sale), open}, configuration(s.offer.Sale)...)
		extra := s.inflight[shard] - s.lengths[shard]
		args = append(args, "left", evenly(left, shard, len(s.tags)), "extra", extra, "version", s.offer.Stock.Version)
		code, err := installScript.Run(ctx, s.gate.client, keys, args...).Int()
		switch {
		case err == nil && code == 0:
			return model.ErrNewerGate
		case err == nil && code == 2:
			return model.ErrStreamMoved
		}
		return err
	})
	if err != nil || open == 1 {
		return err
	}
	return eachShard(s.offer.GateRef(), "open the gate", func(_ int, tag string) error {
		ok, err := openScript.Run(ctx, s.gate.client, []string{gateKey(tag)}, s.epoch).Bool()
		if err == nil && !ok {
			return model.ErrNewerGate
		}
		return err
	})
}

// evenly divides units among shards, and returns the share of one shard. If there is a rest, the first shards get one unit more
// each. A negative number goes to the first shard.
func evenly(units int64, shard, shards int) int64 {
	if units < 0 && shard == 0 {
		return units
	}
	return max(units+int64(shards-1-shard), 0) / int64(shards)
}
