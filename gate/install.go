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
	// stagingTTL is the time after which Redis deletes the staged keys of a rebuild that died.
	stagingTTL = time.Minute
	// page is how many entries of a stream, or fields of a hash, are read at a time, so that no command of Redis takes long.
	page = 1000
	// pagesAtOnce is how many pages are sent at the same time: Redis works on one while the engine encodes the next.
	pagesAtOnce = 2
	// nobody is a field that every staged hash has from its first command on. It keeps the hash from being empty, so that there is a
	// key to rename. A staged hash that has expired, and that a later page has created again, lacks the field and is not installed.
	nobody = ""
	// asTable is the value of the field nobody. Because it is longer than 64 bytes, Redis stores the hash as a table, in which an
	// attempt finds its two fields at once. By default, Redis searches a hash of up to 512 short values from the beginning.
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

// Install puts an open gate of a new epoch with these contents in the place of a closed or missing one. lengths are the lengths
// of the streams, read before the snapshot of the contents was taken. Install deletes unreadable entries of the streams, whose
// texts bad has, even after an error, and entries that count as settled (addPage). It returns model.ErrStreamMoved if an entry
// left a stream meanwhile or the staged keys have expired; and model.ErrNewerGate if there is an open gate of this epoch or one
// of a newer epoch, if the old gate was closed for a newer one, or if an installed shard is gone. In both cases it opens no gate.
//
// The old gate is closed, so its streams can only shrink: a stream of the same length is unchanged. What grows with the number of
// orders is sent to Redis in pages, and put in place by RENAME. So with more orders the engine needs no more memory, and Redis
// makes no longer pause.
func (g *Gate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.Install})
	defer func() { end(err) }()
	offer := c.Offer()
	s := &staging{
		gate: g, epoch: epoch, name: fmt.Sprintf("%d-%s", epoch, rand.Text()), offer: offer, tags: tagsOf(offer.GateRef()),
		lengths: slices.Clone(lengths), inflight: make([]int64, len(lengths)),
	}
	defer func() {
		if err != nil { // if a large key expired instead, Redis would stand still while it frees the key
			err = errors.Join(err, eachShard(offer.GateRef(), "drop what was staged", func(shard int, _ string) error {
				// Redis frees the memory in the background.
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

// staging gathers the contents of a new gate in keys of its own, beside those of the gate that is in place.
type staging struct {
	gate     *Gate
	epoch    int64
	name     string // in the names of the staged keys; each try has another, so a late command of an earlier try changes nothing
	offer    model.Offer
	tags     []string // of the gate's shards
	lengths  []int64  // how many entries each stream must have; addEntries subtracts those that it deletes
	inflight []int64  // units of the entries in the stream of each shard
}

// units returns the key of a shard's staged hash.
func (s *staging) units(shard int) string { return stagedKey(unitsKey(s.tags[shard]), s.name) }

// send sends commands for each shard, renews the expiry of the staged keys, and returns model.ErrStreamMoved if the length of a
// stream differs from that in s.lengths: then an entry has left it, and the rebuild has to start again.
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
// the value of a row, and the user to whose shard the row goes. stage returns the first error of a write or of reading the pages,
// after which it begins no other page.
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

// addEntries reads the stream of a shard, deletes the settled entries and those that can't be read, whose texts bad has, and adds
// the others to the staged hash. It returns model.ErrStreamMoved if it notices that an entry has left a stream meanwhile; if it
// does not notice, install.lua does.
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

// addPage handles one page of entries for addEntries. An entry counts as settled if its id is staged already: then the
// database has decided the attempt, or an earlier entry has the same id.
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
	units, settled := map[string]any{}, []string(nil) // units by field, including those that were staged before
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

// install puts the staged keys in place, each shard with its share of the units left, and returns errors as Install does. Several
// shards are opened only when all are installed: until then no stream grows, so after ErrStreamMoved the rebuild can start again.
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

// evenly divides units among shards and returns the share of one shard. The first shards get one unit more each if there is a
// rest. A negative number goes to the first shard as a whole.
func evenly(units int64, shard, shards int) int64 {
	if units < 0 && shard == 0 {
		return units
	}
	return max(units+int64(shards-1-shard), 0) / int64(shards)
}
