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
	"sync"
	"testing"
	"time"
)

// A report comes back as it was, page and figures.
func TestShelf(t *testing.T) {
	shelf := NewShelf(filepath.Join(t.TempDir(), "data", "lab"))
	if list, err := shelf.List(); err != nil || len(list) > 0 {
		t.Errorf("before there is a folder: %v, %v", list, err)
	}
	if _, ok, err := shelf.Find(rand.Text()); ok || err != nil {
		t.Errorf("before there is a folder: found %t, %v", ok, err)
	}
	if err := shelf.Ready(); err != nil {
		t.Fatal(err)
	}
	report := sample(t)
	id, err := shelf.Save(report)
	if err != nil || len(id) != reportIDLength {
		t.Fatalf("%q, %v", id, err)
	}
	found, ok, err := shelf.Find(id)
	if err != nil || !ok {
		t.Fatalf("found %t, %v", ok, err)
	}
	if written(t, found.WriteHTML) != written(t, report.WriteHTML) || written(t, found.WriteJSON) != written(t, report.WriteJSON) {
		t.Error("the report has changed on the shelf")
	}
	later := *report
	later.StartedAt = report.StartedAt.Add(time.Second)
	newest, err := shelf.Save(&later)
	if err != nil {
		t.Fatal(err)
	}
	list, err := shelf.List()
	if err != nil || len(list) != 2 || list[0].ID != newest || list[1].ID != id || len(list[1].Strategies) != 2 {
		t.Errorf("listed %v, %v; want %s, then %s", list, err, newest, id)
	}
}

// Only what is listed can be found: no other file, whatever its name.
func TestShelfFindsNothingElse(t *testing.T) {
	folder := t.TempDir()
	shelf := NewShelf(filepath.Join(folder, "lab"))
	id, err := shelf.Save(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	other := rand.Text()
	for name, text := range map[string]string{
		"secret.json": "{}", "lab/notes.json": "{}", "lab/" + other + ".txt": "{}", "lab/" + other + unfinishedEnd: "{}",
		"lab/" + strings.ToLower(other) + ".json": "{}", "lab/" + other + "A.json": "{}",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(folder, "secret.json"), filepath.Join(folder, "lab", strings.Repeat("A", 26)+".json")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", ".", "..", "notes", "../secret", "%2e%2e/secret", other, strings.ToLower(other), other + "A", id + ".json", "./" + id, id + "\x00",
		"../lab/" + id, strings.Repeat("../", 8) + "AA",
	} {
		if _, ok, err := shelf.Find(name); ok || err != nil {
			t.Errorf("%q: found %t, %v", name, ok, err)
		}
	}
	if _, ok, err := shelf.Find(strings.Repeat("A", 26)); ok || err == nil {
		t.Errorf("a link that leads out: found %t, %v", ok, err)
	}
}

// A file that is no report hides none of the others.
func TestShelfWithABrokenReport(t *testing.T) {
	for name, text := range map[string]string{"cut off": `{"buyers":`, "something else": "{}"} {
		t.Run(name, func(t *testing.T) { testBrokenReport(t, text) })
	}
}

func testBrokenReport(t *testing.T, text string) {
	folder := t.TempDir()
	shelf := NewShelf(folder)
	id, err := shelf.Save(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	broken := rand.Text()
	if err := os.WriteFile(filepath.Join(folder, broken+reportEnd), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := shelf.List()
	if len(list) != 1 || list[0].ID != id || err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("%v, %v", list, err)
	}
	if _, ok, err := shelf.Find(broken); ok || err == nil {
		t.Errorf("found %t, %v", ok, err)
	}
}

// The newest keptReports stay, and nothing of what crashes left unfinished; other files are not the shelf's to remove.
func TestShelfForgets(t *testing.T) {
	folder := t.TempDir()
	shelf := NewShelf(folder)
	report := sample(t)
	var ids []string
	for i := range keptReports + 3 {
		id, err := shelf.Save(report)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		at := time.Now().Add(time.Duration(i-1000) * time.Second)
		if err := os.Chtimes(filepath.Join(folder, id+reportEnd), at, at); err != nil {
			t.Fatal(err)
		}
	}
	old, young := rand.Text()+unfinishedEnd, rand.Text()+unfinishedEnd
	long := time.Now().Add(-2 * longestWriting)
	for name, at := range map[string]time.Time{old: long, young: time.Now(), "notes.part": long, "notes.json": long} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	last, err := shelf.Save(report)
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, last)
	for i, id := range ids {
		_, ok, err := shelf.Find(id)
		if want := i >= len(ids)-keptReports; ok != want || err != nil {
			t.Errorf("report %d of %d: found %t, %v", i+1, len(ids), ok, err)
		}
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
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			shelf := NewShelf(folder)
			for range 5 {
				id, err := shelf.Save(report)
				if err != nil {
					t.Error(err)
				}
				if _, ok, err := shelf.Find(id); !ok || err != nil {
					t.Errorf("found %t, %v", ok, err)
				}
			}
		})
	}
	all.Wait()
	if list, err := NewShelf(folder).List(); len(list) != 40 || err != nil {
		t.Errorf("%d reports, %v", len(list), err)
	}
}

// What can't be written leaves nothing behind, and says so before anything is measured.
func TestShelfThatCantBeWritten(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shelf := NewShelf(filepath.Join(file, "lab"))
	if shelf.Ready() == nil {
		t.Error("a folder in a file is ready")
	}
	if id, err := shelf.Save(sample(t)); err == nil {
		t.Errorf("saved as %s", id)
	}
}

// The page's policy names its one style and allows nothing else, and the page needs nothing else.
func TestPagePolicy(t *testing.T) {
	page := written(t, sample(t).WriteHTML)
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	if len(styles) != 1 {
		t.Fatalf("%d styles", len(styles))
	}
	sum := sha256.Sum256([]byte(styles[0][1]))
	want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"
	if policy := PagePolicy(); !strings.Contains(policy, want) || !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") {
		t.Errorf("%s, want %s", policy, want)
	}
	if found := regexp.MustCompile(`(?i)<(script|img|link|iframe|object|form|base)\b|\s(style|on\w+|src|href)=|url\(|@import`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
}
