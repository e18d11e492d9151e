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
	// keptReports is how many reports a shelf keeps. All of them take a few megabytes.
	keptReports = 50
	// reportIDLength is the length of a text of rand.Text.
	reportIDLength = 26
	// reportEnd and unfinishedEnd are the suffixes of the files of finished reports and of reports that are being written.
	reportEnd, unfinishedEnd = ".json", ".part"
	// longestWriting is far longer than it takes to write a report. An unfinished file that is older counts as left by a crash.
	longestWriting = time.Minute
)

// Shelf is a folder of reports, each in one file. Several processes may use it.
type Shelf struct{ folder string }

// NewShelf makes a Shelf that keeps its reports in this folder. Ready and Save create the folder.
func NewShelf(folder string) *Shelf { return &Shelf{folder} }

// Shelved is a report with its id. Nobody can guess the id.
type Shelved struct {
	ID string
	*Report
}

// open opens the folder, and creates it if it is missing. os.Root keeps file names from leading out of the folder.
func (s *Shelf) open() (*os.Root, error) {
	if err := os.MkdirAll(s.folder, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of reports: %w", err)
	}
	return os.OpenRoot(s.folder)
}

// Ready returns an error if the folder can't be created or opened. It is called before the work that makes a report.
func (s *Shelf) Ready() error {
	root, err := s.open()
	if err == nil {
		err = root.Close()
	}
	return err
}

// Save stores a report under a new id, and deletes the oldest reports if there are too many. The file gets its final name when it
// is complete. If Save returns an id and an error, the report is stored, but what follows has failed, such as deleting old files.
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

// List returns all reports, the newest first. Reports that can't be read are left out, and the error names them.
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
	if err == nil && r.Stock < 1 { // the lab writes no such report, and the charts need a stock
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
		case errors.Is(infoErr, fs.ErrNotExist): // another process has deleted it
		case infoErr != nil:
			err = errors.Join(err, infoErr)
		default:
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return files, err
}

// prune keeps keptReports reports, those whose files were changed last. It deletes the others, and old unfinished files.
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
