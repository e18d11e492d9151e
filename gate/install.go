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
	// page is how many entries of a stream are read at a time.
	page = 1000
	// pagesAtOnce is how many pages are sent at the same time: Redis works on one while the engine encodes the next.
	pagesAtOnce = 2
	// nobody is a field that every staged hash has from its first command on. It keeps the hash from being empty, so
	// that there is a key to rename. A staged hash that has expired, and that a later page has created again, lacks
	// the field and is not installed.
	nobody = ""
	// asTable is the value of the field nobody. By default, Redis stores a hash of up to 512 fields as a list, which it searches
	// from the beginning, unless a value is longer than 64 bytes: then it stores a table. An attempt looks up two fields.
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

// Install replaces a closed gate by an open one of a new epoch with these contents. lengths are the lengths of the
// streams, read before the snapshot of the contents was taken. From the streams, Install deletes the entries that were settled
// before the snapshot, and those that can't be read. bad has the texts of the latter, even if Install then returns an
// error. Install returns model.ErrStreamMoved if an entry was settled meanwhile or the staged keys have expired, and
// model.ErrNewerGate if an open gate of this epoch or a newer gate is there, or the old one was closed for a newer one. In both
// cases this call has not opened the gate.
//
// The old gate is closed, so its streams can only shrink: a stream of the same length is unchanged. Everything that
// grows with the number of orders is sent to Redis in pages, and put in place by RENAME. So neither the engine's
// memory nor a pause of Redis grows with the number of orders.
func (g *Gate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) (bad []string, err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.Install})
	defer func() { end(err) }()
	s := newStaging(g, epoch, lengths, c.Offer())
	defer func() {
		if err != nil { // if a large key expired instead, Redis would free it at once, and pause
			err = errors.Join(err, s.drop(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if err := inPages(ctx, c.Buyers(ctx), s.addBuyers); err != nil {
		return nil, err
	}
	staging, staged := g.observe.Begin(ctx, observe.Step{Name: observe.StageIDs})
	err = inPages(staging, c.Known(staging), s.addKnown)
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

// inPages calls add for each of the pages, for up to pagesAtOnce at the same time. It returns the first error of add or of
// reading the pages, after which it begins no other page.
func inPages[T any](ctx context.Context, pages iter.Seq2[[]T, error], add func(ctx context.Context, page []T) error) error {
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
			return add(all, page)
		})
	}
	return cmp.Or(adding.Wait(), ctx.Err())
}

// staging gathers the contents of a new gate in keys beside the gate in place.
type staging struct {
	gate     *Gate
	epoch    int64
	name     string // of this try alone, in its keys, so that a late command of an earlier try changes nothing
	offer    model.Offer
	tags     []string // of the gate's shards
	lengths  []int64  // entries that each stream must have; addEntries leaves out those that it deletes
	inflight []int64  // units of the entries of each shard
}

func newStaging(g *Gate, epoch int64, lengths []int64, offer model.Offer) *staging {
	return &staging{
		gate: g, epoch: epoch, name: fmt.Sprintf("%d-%s", epoch, rand.Text()), offer: offer, tags: tagsOf(offer.GateRef()),
		lengths: slices.Clone(lengths), inflight: make([]int64, len(lengths)),
	}
}

// units returns the key of a shard's staged hash.
func (s *staging) units(shard int) string { return stagedKey(unitsKey(s.tags[shard]), s.name) }

// begin makes the staged keys.
func (s *staging) begin(ctx context.Context) error {
	return s.send(ctx, func(p redis.Pipeliner, shard int) {
		p.HSet(ctx, s.units(shard), nobody, asTable)
	})
}

// drop deletes the staged keys. Redis frees their memory in the background.
func (s *staging) drop(ctx context.Context) error {
	return eachShard(s.offer.GateRef(), "drop what was staged", func(shard int, _ string) error {
		return s.gate.client.Unlink(ctx, s.units(shard)).Err()
	})
}

// send sends commands for each shard, renews the expiry of the staged keys, and compares the lengths of the streams with
// s.lengths. It returns model.ErrStreamMoved if one differs: an entry was settled, and the rebuild has to start again.
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

// put writes rows into the staged hashes. Each row goes to the shard to which its user belongs.
func (s *staging) put(ctx context.Context, rows int, row func(i int) (userID, field string, value any)) error {
	fields := make([][]any, len(s.tags))
	for shard := range fields {
		fields[shard] = make([]any, 0, 2*rows/len(fields))
	}
	for i := range rows {
		userID, field, value := row(i)
		home := homeOf(userID, len(s.tags))
		fields[home] = append(fields[home], field, value)
	}
	return s.send(ctx, func(p redis.Pipeliner, shard int) {
		if len(fields[shard]) > 0 {
			p.HSet(ctx, s.units(shard), fields[shard]...)
		}
	})
}

func (s *staging) addBuyers(ctx context.Context, buyers []model.Buyer) error {
	return s.put(ctx, len(buyers), func(i int) (userID, field string, value any) {
		return buyers[i].UserID, buyers[i].UserID, buyers[i].Units
	})
}

func (s *staging) addKnown(ctx context.Context, known []model.Known) error {
	return s.put(ctx, len(known), func(i int) (userID, field string, value any) {
		return known[i].UserID, idField(known[i].ID), known[i].Quantity
	})
}

// addEntries reads the stream of a shard, deletes the settled entries and those that can't be read, and adds the others to the
// staged hash. bad has the texts of those that can't be read. It returns model.ErrStreamMoved if an entry was settled meanwhile.
func (s *staging) addEntries(ctx context.Context, shard int) (bad []string, err error) {
	stream, had, found := streamKey(s.tags[shard]), s.lengths[shard], int64(0)
	for start, more := "-", true; more; {
		messages, err := s.gate.client.XRangeN(ctx, stream, start, "+", page).Result()
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
		found, more = found+int64(len(messages)), len(messages) == page
		if more {
			start = "(" + messages[page-1].ID
		}
	}
	if found != had { // an entry was settled and deleted after the snapshot was taken, so the snapshot lacks its order
		return bad, model.ErrStreamMoved
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
	if err := s.discard(ctx, shard, settled); err != nil {
		return err
	}
	return s.send(ctx, func(p redis.Pipeliner, at int) {
		if at == shard {
			p.HSet(ctx, s.units(shard), units)
		}
	})
}

// discard deletes entries of a shard's stream.
func (s *staging) discard(ctx context.Context, shard int, streamIDs []string) error {
	if len(streamIDs) == 0 {
		return nil
	}
	s.lengths[shard] -= int64(len(streamIDs))
	if err := s.gate.client.XDel(ctx, streamKey(s.tags[shard]), streamIDs...).Err(); err != nil {
		return fmt.Errorf("delete settled entries: %w", err)
	}
	return nil
}

// install puts the staged keys in place. If there are several shards, they are opened only when all of them are
// installed. Until then no stream grows, so the rebuild can start again if one stream has moved (model.ErrStreamMoved). install
// returns model.ErrNewerGate as Install does.
func (s *staging) install(ctx context.Context) error {
	err := eachShard(s.offer.GateRef(), "install the gate", func(shard int, tag string) error { return s.installShard(ctx, shard, tag) })
	if err != nil || len(s.tags) == 1 {
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

// installShard installs one shard with its share of the units left, and opens it if it is the only one.
func (s *staging) installShard(ctx context.Context, shard int, tag string) error {
	left, open := s.offer.Stock.Available, 0
	for _, n := range s.inflight {
		left -= n
	}
	if len(s.tags) == 1 {
		open = 1
	}
	keys := append(keysOf(tag), s.units(shard))
	args := append([]any{s.epoch, s.lengths[shard], expiry(s.offer.Sale), open}, configuration(s.offer.Sale)...)
	args = append(args, "left", evenly(left, shard, len(s.tags)), "extra", s.inflight[shard]-s.lengths[shard], "version", s.offer.Stock.Version)
	code, err := installScript.Run(ctx, s.gate.client, keys, args...).Int()
	switch {
	case err == nil && code == 0:
		return model.ErrNewerGate
	case err == nil && code == 2:
		return model.ErrStreamMoved
	}
	return err
}

// evenly divides units among shards and returns the share of one shard. If the division leaves a rest, the first shards get one
// unit more each. A negative number goes to the first shard as a whole.
func evenly(units int64, shard, shards int) int64 {
	if units < 0 && shard == 0 {
		return units
	}
	return max(units+int64(shards-1-shard), 0) / int64(shards)
}
