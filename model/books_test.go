package model_test

import (
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// The seal of a line never changes, and its units never become open to all.
func TestBooksSince(t *testing.T) {
	before := model.Books{Line: model.Line{Phase: model.PhaseCalling, Sealed: 3, Root: "root"}, Stock: model.Stock{Lined: model.InLine}}
	check.Each(t, map[string]struct {
		change func(b *model.Books)
		found  int
	}{
		"nothing":               {func(*model.Books) {}, 0},
		"the seed comes later":  {func(b *model.Books) { b.Line.Seed = "seed" }, 0},
		"late entries":          {func(b *model.Books) { b.Line.Entries = 9 }, 0},
		"another number":        {func(b *model.Books) { b.Line.Sealed = 4 }, 1},
		"another root":          {func(b *model.Books) { b.Line.Root = "other" }, 1},
		"units are open to all": {func(b *model.Books) { b.Stock.Lined = model.Unlined }, 1},
	}, func(t *testing.T, tc struct {
		change func(b *model.Books)
		found  int
	},
	) {
		after := before
		tc.change(&after)
		check.Same(t, "found", len(after.Since(before)), tc.found)
	})
	seeded := before
	seeded.Line.Seed = "seed"
	other := seeded
	other.Line.Seed = "other"
	check.Same(t, "another seed", len(other.Since(seeded)), 1)
}
