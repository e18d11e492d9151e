package repository

import (
	"fmt"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestRehearsals(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		largest := func(version string) string {
			r, ok, err := d.LargestRehearsal(t.Context(), version)
			check.NoError(t, err)
			if !ok {
				return "none"
			}
			if r.At.IsZero() {
				t.Error("the rehearsal has no time")
			}
			same, found, err := d.Rehearsal(t.Context(), r.ID)
			check.NoError(t, err)
			check.Same(t, "found by its id", found, true)
			check.Same(t, "the same by its id", same, r)
			return fmt.Sprintf("%s %s: %d for %d, %d/s, %s", r.Version, r.Verdict, r.Buyers, r.Units, r.PerSecond, r.Report)
		}
		save := func(version, verdict string, buyers int64) {
			check.NoError(t, d.SaveRehearsal(t.Context(), model.Rehearsal{Version: version, Verdict: verdict, Buyers: buyers, Units: 7, PerSecond: 9, Report: []byte(`{"中":1}`)}))
		}
		check.Same(t, "before there is one", largest("1"), "none")
		save("1", model.RehearsalPassed, 500)
		save("1", model.RehearsalPassed, 200)
		save("1", "failed", 900)
		save("2", model.RehearsalPassed, 800)
		check.Same(t, "of version 1", largest("1"), `1 passed: 500 for 7, 9/s, {"中":1}`)
		check.Same(t, "of version 2", largest("2"), `2 passed: 800 for 7, 9/s, {"中":1}`)
		check.Same(t, "of version 3", largest("3"), "none")
		list, err := d.Rehearsals(t.Context())
		check.NoError(t, err)
		var newest []string
		for _, r := range list {
			newest = append(newest, fmt.Sprintf("%s %s: %d%s", r.Version, r.Verdict, r.Buyers, r.Report))
		}
		check.Same(t, "the list", newest, []string{"2 passed: 800", "1 failed: 900", "1 passed: 200", "1 passed: 500"})
		_, ok, err := d.Rehearsal(t.Context(), list[0].ID+1)
		check.NoError(t, err)
		check.Same(t, "one that does not exist", ok, false)
		for range keptRehearsals {
			save("1", "failed", 1)
		}
		check.Same(t, "kept", d.count(t, "SELECT COUNT(*) FROM rehearsals"), keptRehearsals)
		check.Same(t, "the oldest are gone", largest("1"), "none")
	})
}
