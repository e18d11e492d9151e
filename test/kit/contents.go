package kit

import (
	"context"
	"iter"
	"maps"
	"slices"

	"flashsale/model"
)

// Contents implements model.GateContents with maps, for tests of a rebuild without a database.
type Contents struct {
	Of         model.Offer
	Units      map[string]int    // live units by user
	Quantities map[string]int    // by the ids of orders and refusals
	Owners     map[string]string // user by the ids of Quantities; only where a test needs it
}

// contentsPage is small, so that even little content takes several pages.
const contentsPage = 2

// ContentsOf returns the contents of an offer that has sold nothing.
func ContentsOf(o model.Offer) Contents {
	return Contents{Of: o, Units: map[string]int{}, Quantities: map[string]int{}, Owners: map[string]string{}}
}

// ReadContents copies contents into memory, and closes them.
func ReadContents(ctx context.Context, c model.GateContents) (Contents, error) {
	defer c.Close()
	read := ContentsOf(c.Offer())
	for page, err := range c.Buyers(ctx) {
		if err != nil {
			return read, err
		}
		for _, b := range page {
			read.Units[b.UserID] = b.Units
		}
	}
	for page, err := range c.Known(ctx) {
		if err != nil {
			return read, err
		}
		for _, k := range page {
			read.Quantities[k.ID], read.Owners[k.ID] = k.Quantity, k.UserID
		}
	}
	return read, nil
}

// Offer implements model.GateContents, as do the other methods.
func (c Contents) Offer() model.Offer { return c.Of }

// Buyers yields Units in pages.
func (c Contents) Buyers(context.Context) iter.Seq2[[]model.Buyer, error] {
	return inPages(c.Units, func(user string, units int) model.Buyer { return model.Buyer{UserID: user, Units: units} })
}

// Known yields Quantities in pages.
func (c Contents) Known(context.Context) iter.Seq2[[]model.Known, error] {
	return inPages(c.Quantities, func(id string, quantity int) model.Known {
		return model.Known{ID: id, UserID: c.Owners[id], Quantity: quantity}
	})
}

// Close does nothing.
func (Contents) Close() {}

func inPages[V, R any](all map[string]V, row func(key string, value V) R) iter.Seq2[[]R, error] {
	return func(yield func([]R, error) bool) {
		for keys := range slices.Chunk(slices.Sorted(maps.Keys(all)), contentsPage) {
			page := make([]R, len(keys))
			for i, key := range keys {
				page[i] = row(key, all[key])
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}
