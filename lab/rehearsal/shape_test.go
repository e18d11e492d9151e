package rehearsal

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// shapeOf reads a shape from a file with this text, beside a recording with that text.
func shapeOf(t *testing.T, text, recording string) (*Shape, error) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"shape.yaml": text, "recording.csv": recording} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ReadShape(filepath.Join(folder, "shape.yaml"))
}

// early is the fraction of the buyers who arrive before a time.
func early(s *Shape, before time.Duration) float64 {
	n, _ := slices.BinarySearch(s.at, before)
	return float64(n) / float64(len(s.at))
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, recording string
		early           map[time.Duration]float64 // the fraction of the buyers by then
	}{
		"spike": {"arrivals: spike\nbuyers: 20000\nunits: 10\nlasts: 20s\nhalf: 2s", "", map[time.Duration]float64{
			2 * time.Second: 0.5, 4 * time.Second: 0.75, 20 * time.Second: 1,
		}},
		"day": {"arrivals: day\nbuyers: 20000\nunits: 10\nlasts: 24s", "", map[time.Duration]float64{
			6 * time.Second: 0.091, 12 * time.Second: 0.5, 18 * time.Second: 0.909, 24 * time.Second: 1,
		}},
		"recording": {"arrivals: recording\nunits: 10\nrecording: recording.csv", "second,buyers\n1700000000,5000\n1700000002,15000\n", map[time.Duration]float64{
			500 * time.Millisecond: 0.125, time.Second: 0.25, 2 * time.Second: 0.25, 3 * time.Second: 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := shapeOf(t, tc.text, tc.recording)
			if err != nil {
				t.Fatal(err)
			}
			if s.Buyers != 20000 || len(s.at) != 20000 || !slices.IsSorted(s.at) || s.at[0] < 0 || s.at[19999] > s.Lasts {
				t.Errorf("%d buyers from %s to %s of %s", len(s.at), s.at[0], s.at[len(s.at)-1], s.Lasts)
			}
			for before, want := range tc.early {
				if got := early(s, before); got < want-0.015 || got > want+0.015 {
					t.Errorf("%.3f of the buyers came before %s, want %.3f", got, before, want)
				}
			}
			sum := 0
			for _, n := range s.perSecond() {
				sum += n
			}
			if sum != 20000 {
				t.Errorf("%d buyers by seconds", sum)
			}
			if again, _ := shapeOf(t, tc.text, tc.recording); !reflect.DeepEqual(again.at, s.at) {
				t.Error("the same shape gives other arrivals")
			}
			if other, _ := shapeOf(t, tc.text+"\nseed: 2", tc.recording); reflect.DeepEqual(other.at, s.at) {
				t.Error("another seed gives the same arrivals")
			}
		})
	}
}

// A shape that is wrong gives one line that names the setting and the field.
func TestShapesRefused(t *testing.T) {
	t.Parallel()
	const good = "arrivals: spike\nbuyers: 5\nunits: 1\n"
	for text, says := range map[string]string{
		"":                                    "arrivals: ",
		"arrivals: rain\nunits: 1\nbuyers: 5": "arrivals: must be spike, day or recording",
		"arrivals: spike\nunits: 1":           "buyers: ",
		"arrivals: spike\nbuyers: 5":          "units: ",
		good + "buyers: 6":                    "buyers",
		good + "colour: red":                  "colour",
		good + "lasts: soon":                  "soon",
		good + "lasts: 25h":                   "lasts: ",
		good + "half: 2m":                     "half: ",
		good + "pay: 1.5":                     "pay: ",
		good + "slow: -1":                     "slow: ",
		good + "bots: .nan":                   "bots: ",
		good + "walk: run":                    "walk: ",
		good + "recording: x.csv":             "recording: ",
		"arrivals: recording\nunits: 1":       "recording: ",
		"arrivals: recording\nunits: 1\nrecording: none.csv":      "recording: ",
		"arrivals: recording\nunits: 1\nrecording: recording.csv": "recording: ", // it is empty
	} {
		_, err := shapeOf(t, text, "")
		if err == nil || !strings.HasPrefix(err.Error(), "--shape: ") || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if _, err := ReadShape(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.HasPrefix(err.Error(), "--shape: ") {
		t.Errorf("no file: %v", err)
	}
	for recording, says := range map[string]string{
		"second,buyers\n":       "has no buyers",
		"1,2\n1,x\n":            "line 2: ",
		"1,-2\n":                "line 1: ",
		"5,1\n4,1\n":            "line 2: ",
		"5,1\n86405,1\n":        "line 2: ",
		"1,2,3\n":               "wrong number of fields",
		"1,2000000\n2,1\n":      "line 2: more than",
		"heading,buyers\nx,y\n": "line 2: ",
	} {
		_, err := shapeOf(t, "arrivals: recording\nunits: 1\nrecording: recording.csv", recording)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", recording, err, says)
		}
	}
}
