package beacon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// askTimeout bounds a request to the source.
	askTimeout = 3 * time.Second
	// maxAnswer bounds the bytes that are read of an answer.
	maxAnswer = 4 << 10
)

// Chain is a chain of drand. Its JSON is that of the chain's page /info.
type Chain struct {
	Hash      string `json:"hash"`       // names the chain in URLs
	PublicKey string `json:"public_key"` // in hex
	Period    int64  `json:"period"`     // between two rounds, in seconds
	Genesis   int64  `json:"genesis_time"`
}

// QuicknetChain returns drand's chain quicknet.
func QuicknetChain() Chain {
	return Chain{Hash: "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971", PublicKey: Quicknet, Period: 3, Genesis: 1692803367}
}

// ErrSource means that the source did not answer with the round.
var ErrSource = errors.New("the beacon's source has no valid answer")

// Source asks for the rounds of a chain by HTTP. It checks the answers by the chain's key.
type Source struct {
	chain  Chain
	key    []byte
	url    string
	client *http.Client
}

// NewSource creates a Source. "url" is the address without the hash of the chain. The error is ErrKey: the key, the period or the
// genesis of the chain is not valid.
func NewSource(url string, chain Chain) (*Source, error) {
	key, err := hex.DecodeString(chain.PublicKey)
	if err != nil || len(key) != PublicKeySize || chain.Period < 1 || chain.Genesis < 0 {
		return nil, ErrKey
	}
	return &Source{chain: chain, key: key, url: strings.TrimSuffix(url, "/") + "/" + chain.Hash + "/public/", client: &http.Client{Timeout: askTimeout}}, nil
}

// PublicKey returns the chain's key.
func (s *Source) PublicKey() []byte { return s.key }

// After returns the first round that is published later than t.
func (s *Source) After(t time.Time) (round int64) {
	since := t.Sub(time.Unix(s.chain.Genesis, 0))
	if since < 0 {
		return 1
	}
	return int64(since/(time.Duration(s.chain.Period)*time.Second)) + 2
}

// At returns the time at which a round is to be published.
func (s *Source) At(round int64) time.Time {
	return time.Unix(s.chain.Genesis+(round-1)*s.chain.Period, 0)
}

// Round asks for a round, and returns its valid signature and its randomness. The error wraps ErrSource if the source does not
// answer with the round. Another error is one of Verify.
func (s *Source) Round(ctx context.Context, round int64) (signature []byte, randomness [RandomnessSize]byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(s.url, round), nil)
	if err != nil {
		return nil, randomness, fmt.Errorf("%w: %w", ErrSource, err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, randomness, fmt.Errorf("%w: %w", ErrSource, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, randomness, fmt.Errorf("%w: round %d: %w", ErrSource, round, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, randomness, fmt.Errorf("%w: round %d: status %d", ErrSource, round, res.StatusCode)
	}
	var answer struct {
		Round     int64  `json:"round"`
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, randomness, fmt.Errorf("%w: round %d: %w", ErrSource, round, err)
	}
	signature, err = hex.DecodeString(answer.Signature)
	if err != nil || answer.Round != round {
		return nil, randomness, fmt.Errorf("%w: asked for round %d, the answer is of round %d, or its signature is not in hex", ErrSource, round, answer.Round)
	}
	if randomness, err = Verify(s.key, uint64(round), signature); err != nil { //nolint:gosec // rounds are positive
		return nil, randomness, err
	}
	return signature, randomness, nil
}
