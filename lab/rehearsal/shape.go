package rehearsal

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"flashsale/internal/config"
)

const (
	// maxBuyers bounds Shape.Buyers, and so the memory of a run.
	maxBuyers = 2_000_000
	// maxLasts bounds Shape.Lasts.
	maxLasts = 24 * time.Hour
	// maxUnits bounds Shape.Units.
	maxUnits = 100_000_000
)

// Kind says how buyers arrive.
type Kind string

// The kinds of arrivals.
const (
	Spike     Kind = "spike"     // most at the start; the rate halves in each Shape.Half
	Day       Kind = "day"       // the rate rises from zero to twice its mean, and falls to zero
	Recording Kind = "recording" // as the file Shape.Recording says
)

// Walk says which requests a person sends.
type Walk string

// The walks.
const (
	WholeWalk    Walk = "page"     // the page, the stream and the time, then the purchase
	PurchaseWalk Walk = "purchase" // the purchase alone: the path, the order, polling, payment
)

// Shape describes a crowd. It is read from a YAML file.
type Shape struct {
	Arrivals  Kind          `yaml:"arrivals" json:"arrivals"`
	Buyers    int           `yaml:"buyers" json:"buyers"`
	Units     int64         `yaml:"units" json:"units"`
	Lasts     time.Duration `yaml:"lasts" json:"-"`
	Half      time.Duration `yaml:"half" json:"-"`
	Recording string        `yaml:"recording" json:"recording,omitempty"`
	Walk      Walk          `yaml:"walk" json:"walk"`
	Pay       float64       `yaml:"pay" json:"pay"`   // the probability that a person pays for a pending order
	Slow      float64       `yaml:"slow" json:"slow"` // the probability that a person has a slow connection
	Bots      float64       `yaml:"bots" json:"bots"` // the probability that a buyer is a bot, else a person
	Seed      uint64        `yaml:"seed" json:"seed"`

	at []time.Duration // when each buyer arrives, counted from the start; sorted
}

// ReadShape reads a shape from a file, and draws the arrivals or reads their recording.
func ReadShape(file string) (*Shape, error) {
	s := &Shape{Lasts: time.Minute, Half: time.Second, Walk: WholeWalk, Seed: 1}
	text, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err == nil {
		err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(s)
	}
	if err == nil || errors.Is(err, io.EOF) { // an empty file has no fields
		err = s.draw(filepath.Dir(file))
	}
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("--shape: %s: %s", file, line)
	}
	return s, nil
}

func (s *Shape) validate() error {
	recorded := s.Arrivals == Recording
	fraction := func(x float64) bool { return x >= 0 && x <= 1 } // NaN is no fraction
	return cmp.Or(
		config.Refuse(s.Arrivals != Spike && s.Arrivals != Day && !recorded, "arrivals: must be spike, day or recording"),
		config.Refuse(s.Walk != WholeWalk && s.Walk != PurchaseWalk, "walk: must be page or purchase"),
		config.Refuse(recorded && (s.Recording == "" || s.Buyers != 0),
			"recording: names the file of the arrivals, which also says how many buyers there are"),
		config.Refuse(!recorded && s.Recording != "", "recording: only with arrivals: recording"),
		config.Refuse(s.Lasts < time.Second || s.Lasts > maxLasts, "lasts: must be 1s to 24h"),
		config.Refuse(s.Half < time.Millisecond || s.Half > s.Lasts, "half: must be 1ms to the time of lasts"),
		config.Refuse(!fraction(s.Pay), "pay: must be 0 to 1"),
		config.Refuse(!fraction(s.Slow), "slow: must be 0 to 1"),
		config.Refuse(!fraction(s.Bots), "bots: must be 0 to 1"),
		config.Refuse(s.Units < 1 || s.Units > maxUnits, "units: must be 1 to %d", maxUnits),
		config.Refuse(!recorded && (s.Buyers < 1 || s.Buyers > maxBuyers), "buyers: must be 1 to %d", maxBuyers),
	)
}

// draw checks the fields. Then it draws the arrivals, or reads their recording, whose path is relative to this folder.
func (s *Shape) draw(folder string) (err error) {
	if err := s.validate(); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s.Seed, 0)) //nolint:gosec // the arrivals must be repeatable
	if s.Arrivals == Recording {
		if s.at, err = readRecording(filepath.Join(folder, s.Recording), rng); err != nil {
			return fmt.Errorf("recording: %w", err)
		}
		s.Buyers = len(s.at)
		s.Lasts = s.at[len(s.at)-1].Truncate(time.Second) + time.Second
		return nil
	}
	s.at = make([]time.Duration, s.Buyers)
	for i := range s.at {
		if s.Arrivals == Spike {
			s.at[i] = spike(rng.Float64(), s.Half, s.Lasts)
		} else {
			s.at[i] = day(rng, s.Lasts)
		}
	}
	slices.Sort(s.at)
	return nil
}

// spike maps "u", uniform in [0, 1), to an exponential distribution with the half-life "half", truncated at "lasts".
func spike(u float64, half, lasts time.Duration) time.Duration {
	within := 1 - math.Exp2(-float64(lasts)/float64(half))
	return time.Duration(-float64(half) * math.Log2(1-u*within))
}

// day draws a time from a density proportional to 1-cos(2πx), by rejection.
func day(rng *rand.Rand, lasts time.Duration) time.Duration {
	for {
		if x := rng.Float64(); 2*rng.Float64() < 1-math.Cos(2*math.Pi*x) {
			return time.Duration(x * float64(lasts))
		}
	}
}

// readRecording reads a CSV file. Each line has a second and the number of buyers who arrived in it; the first may be a heading.
// The arrivals start with the first second. The buyers of a second are spread over it at random.
func readRecording(file string, rng *rand.Rand) (at []time.Duration, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err
	}
	lines := csv.NewReader(bytes.NewReader(text))
	lines.FieldsPerRecord = 2
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	first := int64(math.MinInt64) // until a line has a second
	for n, row := range rows {
		second, errSecond := strconv.ParseInt(strings.TrimSpace(row[0]), 10, 64)
		buyers, errBuyers := strconv.Atoi(strings.TrimSpace(row[1]))
		if n == 0 && errSecond != nil {
			continue // a heading
		}
		if first == math.MinInt64 {
			first = second
		}
		switch line := n + 1; {
		case errSecond != nil || errBuyers != nil || buyers < 0:
			return nil, fmt.Errorf("line %d: want a whole second and a number of buyers", line)
		case second < first || second-first >= int64(maxLasts/time.Second):
			return nil, fmt.Errorf("line %d: second %d is not within %s after the first", line, second, maxLasts)
		case buyers > maxBuyers-len(at):
			return nil, fmt.Errorf("line %d: more than %d buyers", line, maxBuyers)
		}
		for range buyers {
			at = append(at, time.Duration(second-first)*time.Second+time.Duration(rng.Int64N(int64(time.Second))))
		}
	}
	if len(at) == 0 {
		return nil, errors.New("has no buyers")
	}
	slices.Sort(at)
	return at, nil
}

// perSecond counts the arrivals of each second.
func (s *Shape) perSecond() []int {
	counts := make([]int, int(s.at[len(s.at)-1]/time.Second)+1)
	for _, at := range s.at {
		counts[at/time.Second]++
	}
	return counts
}

// String describes the crowd in one line.
func (s *Shape) String() string {
	how := map[Kind]string{
		Spike: fmt.Sprintf("most at the start, half as many after each %s", s.Half), Day: "as over a day", Recording: "as recorded",
	}[s.Arrivals]
	return fmt.Sprintf("%d buyers for %d units within %s, %s; at most %d in a second", s.Buyers, s.Units, s.Lasts, how, slices.Max(s.perSecond()))
}
