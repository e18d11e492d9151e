package gate

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// tagsOf returns the hash tags of all parts of a gate.
func tagsOf(gate model.GateRef) []string {
	tags := make([]string, gate.Parts)
	for i := range tags {
		tags[i] = tagOf(gate, i)
	}
	return tags
}

// Line returns the hash tag of the part that holds all data of a user and judges the attempts of the user.
func (*Gate) Line(gate model.GateRef, userID string) string {
	return tagOf(gate, homeOf(userID, gate.Parts))
}

// Node returns the address of the Cluster node that holds a line, so that callers can treat a failure of one node
// apart from the others. It returns an empty string without a Cluster, or if the node is not known.
func (g *Gate) Node(ctx context.Context, line string) string {
	cluster, many := g.client.(*redis.ClusterClient)
	if !many {
		return ""
	}
	node, err := cluster.MasterForKey(ctx, gateKey(line))
	if err != nil {
		return "" // the slots of the Cluster can't be read
	}
	return node.Options().Addr
}

// each runs fn for 0 to n-1 concurrently, and joins the errors.
func each(n int, fn func(i int) error) error {
	if n == 1 {
		return fn(0)
	}
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = fn(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// atHome runs fn concurrently for every part that is the home of users in a list. places are the indexes of these
// users in the list.
func atHome(parts, length int, user func(place int) string, fn func(home int, places []int) error) error {
	places := make([][]int, parts)
	for i := range length {
		home := homeOf(user(i), parts)
		places[home] = append(places[home], i)
	}
	return each(parts, func(home int) error {
		if len(places[home]) == 0 {
			return nil
		}
		return fn(home, places[home])
	})
}

// fromParts reads entries from all parts of a gate concurrently: at most count, or at most one from each part if there
// are more parts than count. It returns an error only if no part answers; otherwise it returns the entries of the parts
// that do.
func fromParts(gate model.GateRef, count int, read func(tag string, count int) ([]model.Entry, []string, error)) (entries []model.Entry, bad []string, err error) {
	tags := tagsOf(gate)
	var mu sync.Mutex
	answered := false
	err = each(len(tags), func(i int) error {
		some, unread, err := read(tags[i], max(count/len(tags), 1))
		mu.Lock()
		defer mu.Unlock()
		entries, bad = append(entries, some...), append(bad, unread...)
		answered = answered || err == nil
		return err
	})
	if answered {
		err = nil
	}
	return entries, bad, err
}
