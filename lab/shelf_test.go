package lab

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// save stores a report.
func save(t *testing.T, shelf *Shelf, r *Report) (id string) {
	t.Helper()
	id, err := shelf.Save(r)
	if err != nil || len(id) != reportIDLength {
		t.Fatalf("%q, %v", id, err)
	}
	return id
}

// wantFound fails the test unless a report is on the shelf, or is not.
func wantFound(t *testing.T, shelf *Shelf, id string, want bool) *Report {
	t.Helper()
	report, ok, err := shelf.Find(id)
	if ok != want || err != nil {
		t.Errorf("%q: found %t, %v", id, ok, err)
	}
	return report
}

// writeFile writes a file, with a time of its last change.
func writeFile(path, text string, at time.Time) {
	check.Done(errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)))
}

// A stored report has the same page and the same figures. The list begins with the newest report.
func TestShelf(t *testing.T) {
	shelf := NewShelf(filepath.Join(t.TempDir(), "data", "lab"))
	check.Same(t, "reports before the folder exists", len(check.Must(shelf.List())), 0)
	wantFound(t, shelf, rand.Text(), false)
	check.Done(shelf.Ready())
	report := sample(t)
	id := save(t, shelf, report)
	found := wantFound(t, shelf, id, true)
	check.Same(t, "page from the shelf", written(found.WriteHTML), written(report.WriteHTML))
	check.Same(t, "figures from the shelf", asJSON(found), asJSON(report))
	later := *report
	later.StartedAt = report.StartedAt.Add(time.Second)
	newest := save(t, shelf, &later)
	list, err := shelf.List()
	if err != nil || len(list) != 2 || list[0].ID != newest || list[1].ID != id || len(list[1].Strategies) != 2 {
		t.Errorf("listed %v, %v; want %s, then %s", list, err, newest, id)
	}
}

// Only reports can be found, and no other file, whatever its name.
func TestShelfFindsNothingElse(t *testing.T) {
	folder := t.TempDir()
	shelf := NewShelf(filepath.Join(folder, "lab"))
	id, other, link := save(t, shelf, sample(t)), rand.Text(), strings.Repeat("A", 26)
	for _, name := range []string{
		"secret.json", "lab/notes.json", "lab/" + other + ".txt", "lab/" + other + unfinishedEnd,
		"lab/" + strings.ToLower(other) + ".json", "lab/" + other + "A.json",
	} {
		writeFile(filepath.Join(folder, name), "{}", time.Now())
	}
	check.Done(os.Symlink(filepath.Join(folder, "secret.json"), filepath.Join(folder, "lab", link+".json")))
	for _, name := range []string{
		"", ".", "..", "notes", "../secret", "%2e%2e/secret", other, strings.ToLower(other), other + "A", id + ".json", "./" + id, id + "\x00",
		"../lab/" + id, strings.Repeat("../", 8) + "AA",
	} {
		wantFound(t, shelf, name, false)
	}
	if _, ok, err := shelf.Find(link); ok || err == nil {
		t.Errorf("a link to a file outside: found %t, %v", ok, err)
	}
}

// A file that is no report does not hide the others.
func TestShelfWithABrokenReport(t *testing.T) {
	check.Each(t, map[string]string{"cut off": `{"buyers":`, "no report": "{}"}, func(t *testing.T, text string) {
		folder := t.TempDir()
		shelf := NewShelf(folder)
		id, broken := save(t, shelf, sample(t)), rand.Text()
		writeFile(filepath.Join(folder, broken+reportEnd), text, time.Now())
		list, err := shelf.List()
		if len(list) != 1 || list[0].ID != id || err == nil || !strings.Contains(err.Error(), broken) {
			t.Errorf("%v, %v", list, err)
		}
		if _, ok, err := shelf.Find(broken); ok || err == nil {
			t.Errorf("found %t, %v", ok, err)
		}
	})
}

// The newest keptReports stay. Unfinished files that crashes left are deleted; other files are not.
func TestShelfForgets(t *testing.T) {
	folder := t.TempDir()
	shelf, report := NewShelf(folder), sample(t)
	var ids []string
	for i := range keptReports + 3 {
		id := save(t, shelf, report)
		ids = append(ids, id)
		at := time.Now().Add(time.Duration(i-1000) * time.Second)
		check.Done(os.Chtimes(filepath.Join(folder, id+reportEnd), at, at))
	}
	old, young := rand.Text()+unfinishedEnd, rand.Text()+unfinishedEnd
	long := time.Now().Add(-2 * longestWriting)
	for name, at := range map[string]time.Time{old: long, young: time.Now(), "notes.part": long, "notes.json": long} {
		writeFile(filepath.Join(folder, name), "", at)
	}
	ids = append(ids, save(t, shelf, report))
	for i, id := range ids {
		wantFound(t, shelf, id, i >= len(ids)-keptReports)
	}
	for name, want := range map[string]bool{old: false, young: true, "notes.part": true, "notes.json": true} {
		if _, err := os.Stat(filepath.Join(folder, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Reports that are saved at the same time, by several processes, are all kept.
func TestShelfAtOnce(t *testing.T) {
	folder, report := t.TempDir(), sample(t)
	check.Together(8, func(int) {
		shelf := NewShelf(folder)
		for range 5 {
			wantFound(t, shelf, check.Must(shelf.Save(report)), true)
		}
	})
	check.Same(t, "reports", len(check.Must(NewShelf(folder).List())), 40)
}

// A folder that can't be written to is refused before anything is measured.
func TestShelfThatCantBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(file, "", time.Now())
	shelf := NewShelf(filepath.Join(file, "lab"))
	check.Same(t, "a folder in a file is ready", shelf.Ready() == nil, false)
	if id, err := shelf.Save(sample(t)); err == nil {
		t.Errorf("saved as %s", id)
	}
}

// The policy of the page allows its one style by the hash, and nothing else. TestPage shows that the page needs nothing else.
func TestPagePolicy(t *testing.T) {
	page := written(sample(t).WriteHTML)
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	if len(styles) != 1 {
		t.Fatalf("%d styles", len(styles))
	}
	sum := sha256.Sum256([]byte(styles[0][1]))
	want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"
	if policy := PagePolicy(); !strings.Contains(policy, want) || !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") {
		t.Errorf("%s, want %s", policy, want)
	}
}
