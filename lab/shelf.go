package lab

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"flashsale/model"
)

const (
	// keptReports bounds how many reports a shelf keeps.
	keptReports = 50
	// reportIDLength is the length of a string from rand.Text.
	reportIDLength = 26
	// The name of a report's file ends with reportEnd; while the file is written, it ends with unfinishedEnd.
	reportEnd, unfinishedEnd = ".json", ".part"
	// An unfinished file that has not changed for longestWriting counts as left behind by a crash.
	longestWriting = time.Minute
)

// Shelf is a folder of reports, each in one file. Several processes may use it.
type Shelf struct{ folder string }

// NewShelf makes a Shelf of a folder. Ready and Save create the folder if it is missing.
func NewShelf(folder string) *Shelf { return &Shelf{folder} }

// Shelved is a report with its id.
type Shelved struct {
	ID string
	*Report
}

// open opens the folder, and creates it if it is missing.
func (s *Shelf) open() (*os.Root, error) {
	if err := os.MkdirAll(s.folder, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of reports: %w", err)
	}
	return os.OpenRoot(s.folder)
}

// Ready returns an error if the folder can't be created or opened.
func (s *Shelf) Ready() error {
	root, err := s.open()
	if err == nil {
		err = root.Close()
	}
	return err
}

// Save stores a report under a new random id, and deletes old files. If it returns an id and an error, the report is stored.
func (s *Shelf) Save(r *Report) (id string, err error) {
	root, err := s.open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	id = rand.Text()
	unfinished, err := root.Create(id + unfinishedEnd)
	if err != nil {
		return "", fmt.Errorf("keep a report: %w", err)
	}
	err = errors.Join(WriteJSON(unfinished, r), unfinished.Sync(), unfinished.Close())
	if err == nil {
		err = root.Rename(id+unfinishedEnd, id+reportEnd)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("keep a report: %w", err), root.Remove(id+unfinishedEnd))
	}
	return id, prune(root)
}

// Find returns the report with an id. If there is none, ok is false and err is nil; if it can't be read, err says why.
func (s *Shelf) Find(id string) (r *Report, ok bool, err error) {
	if !model.ValidID(id, reportIDLength) {
		return nil, false, nil
	}
	root, err := os.OpenRoot(s.folder)
	if err == nil {
		defer func() { err = errors.Join(err, root.Close()) }()
		r, err = read(root, id)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return r, err == nil, err
}

// List returns the reports, the newest first. It leaves out reports that can't be read, and returns the errors of reading them.
func (s *Shelf) List() (list []Shelved, err error) {
	root, err := os.OpenRoot(s.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := ours(root, reportEnd)
	for _, file := range files {
		id := strings.TrimSuffix(file.Name(), reportEnd)
		report, readErr := read(root, id)
		switch {
		case errors.Is(readErr, fs.ErrNotExist): // deleted meanwhile
		case readErr != nil:
			err = errors.Join(err, readErr)
		default:
			list = append(list, Shelved{id, report})
		}
	}
	slices.SortFunc(list, func(a, b Shelved) int { return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(a.ID, b.ID)) })
	return list, err
}

func read(root *os.Root, id string) (*Report, error) {
	raw, err := root.ReadFile(id + reportEnd)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	err = json.Unmarshal(raw, r)
	if err == nil && r.Stock < 1 { // the charts need a stock
		err = errors.New("it has no stock")
	}
	if err != nil {
		return nil, fmt.Errorf("read the report %s: %w", id, err)
	}
	return r, nil
}

// ours lists the files whose names are an id followed by "end", beginning with the file that was changed last.
func ours(root *os.Root, end string) (files []fs.FileInfo, err error) {
	all, err := fs.ReadDir(root.FS(), ".")
	for _, file := range all {
		id, ends := strings.CutSuffix(file.Name(), end)
		info, infoErr := file.Info()
		switch {
		case !ends || !model.ValidID(id, reportIDLength):
		case errors.Is(infoErr, fs.ErrNotExist): // deleted meanwhile
		case infoErr != nil:
			err = errors.Join(err, infoErr)
		default:
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return files, err
}

// prune deletes old unfinished files, and all reports but the keptReports whose files were changed last.
func prune(root *os.Root) error {
	reports, err := ours(root, reportEnd)
	unfinished, errUnfinished := ours(root, unfinishedEnd)
	err = errors.Join(err, errUnfinished)
	old := reports[min(len(reports), keptReports):]
	for _, file := range unfinished {
		if time.Since(file.ModTime()) > longestWriting {
			old = append(old, file)
		}
	}
	for _, file := range old {
		if errRemove := root.Remove(file.Name()); !errors.Is(errRemove, fs.ErrNotExist) {
			err = errors.Join(err, errRemove)
		}
	}
	return err
}
