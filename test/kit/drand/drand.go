// Package drand serves rounds as a relay of drand does, signed with a key of its own. The tests don't ask the real drand.
package drand

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"

	"flashsale/internal/beacon"
	"flashsale/test/kit/check"
)

// Source is a running relay.
type Source struct {
	URL   string
	Chain beacon.Chain
	key   *bls.PrivateKey[bls.KeyG2SigG1]
	fault atomic.Pointer[func(w http.ResponseWriter, round int64)]
	asked atomic.Int64
}

// Serve starts a relay whose chain began in the past and has a round each second. It ends with the test.
func Serve(t testing.TB) *Source {
	t.Helper()
	s := &Source{key: check.Must(bls.KeyGen[bls.KeyG2SigG1](bytes.Repeat([]byte{7}, sha256.Size), nil, nil))}
	public := check.Must(s.key.PublicKey().MarshalBinary())
	s.Chain = beacon.Chain{Hash: "chain", PublicKey: hex.EncodeToString(public), Period: 1, Genesis: time.Now().Unix() - 1000}
	server := httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Info returns the chain as JSON.
func (s *Source) Info() string { return string(check.Must(json.Marshal(s.Chain))) }

// Break lets another function answer from now on; nil ends that.
func (s *Source) Break(answer func(w http.ResponseWriter, round int64)) {
	if answer == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&answer)
}

// Asked returns how many questions have come.
func (s *Source) Asked() int64 { return s.asked.Load() }

// Sign returns the signature of a round.
func (s *Source) Sign(round int64) []byte {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(round)))
	return bls.Sign(s.key, message[:])
}

// JSON returns an answer that names a round and has a signature.
func JSON(round int64, signature []byte) string {
	randomness := sha256.Sum256(signature)
	return fmt.Sprintf(`{"round":%d,"randomness":"%x","signature":"%x"}`, round, randomness, signature)
}

func (s *Source) answer(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	text, ok := strings.CutPrefix(r.URL.Path, "/"+s.Chain.Hash+"/public/")
	round, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		http.NotFound(w, r)
		return
	}
	if fault := s.fault.Load(); fault != nil {
		(*fault)(w, round)
		return
	}
	if time.Now().Unix() < s.Chain.Genesis+(round-1)*s.Chain.Period {
		http.Error(w, "too early", http.StatusTooEarly)
		return
	}
	_, _ = w.Write([]byte(JSON(round, s.Sign(round))))
}
