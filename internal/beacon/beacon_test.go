package beacon

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/cloudflare/circl/ecc/bls12381"
	"github.com/cloudflare/circl/sign/bls"

	"flashsale/test/kit/check"
)

func unhex(text string) []byte { return check.Must(hex.DecodeString(text)) }

// Round 1000 of quicknet, which drand shows at
// https://api.drand.sh/52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971/public/1000.
func TestQuicknet(t *testing.T) {
	signature := unhex("b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39")
	got, err := Verify(unhex(Quicknet), 1000, signature)
	check.NoError(t, err)
	check.Same(t, "randomness", hex.EncodeToString(got[:]), "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd")
	_, err = Verify(unhex(Quicknet), 1001, signature)
	check.Error(t, "another round", err, ErrSignature)
}

func TestVerify(t *testing.T) {
	private := check.Must(bls.KeyGen[bls.KeyG2SigG1](bytes.Repeat([]byte{1}, 32), nil, nil))
	stranger := check.Must(bls.KeyGen[bls.KeyG2SigG1](bytes.Repeat([]byte{2}, 32), nil, nil))
	key := check.Must(private.PublicKey().MarshalBinary())
	const round = 1 << 40
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, round))
	good := bls.Sign(private, message[:])
	var point bls12381.G1
	check.NoError(t, point.SetBytes(good))
	plain := point.Bytes()
	point.Neg()
	infinity := append([]byte{0xc0}, make([]byte, SignatureSize-1)...)

	randomness, err := Verify(key, round, good)
	check.NoError(t, err)
	check.Same(t, "randomness", randomness, sha256.Sum256(good))
	check.Each(t, map[string]struct {
		key       []byte
		round     uint64
		signature []byte
		want      error
	}{
		"another round":             {key, round + 1, good, ErrSignature},
		"round zero":                {key, 0, good, ErrSignature},
		"a stranger's key":          {check.Must(stranger.PublicKey().MarshalBinary()), round, good, ErrSignature},
		"a stranger's signature":    {key, round, bls.Sign(stranger, message[:]), ErrSignature},
		"the negative signature":    {key, round, point.BytesCompressed(), ErrSignature},
		"the uncompressed form":     {key, round, plain, ErrSignature},
		"the point at infinity":     {key, round, infinity, ErrSignature},
		"no point of the curve":     {key, round, bytes.Repeat([]byte{0x9f}, SignatureSize), ErrSignature},
		"no signature":              {key, round, nil, ErrSignature},
		"a byte after a signature":  {key, round, append(bytes.Clone(good), 0), ErrSignature},
		"no key":                    {nil, round, good, ErrKey},
		"a short key":               {key[1:], round, good, ErrKey},
		"a key of zeros":            {make([]byte, PublicKeySize), round, good, ErrKey},
		"a key that is no point":    {bytes.Repeat([]byte{0x9f}, PublicKeySize), round, good, ErrKey},
		"a key that is at infinity": {append([]byte{0xc0}, make([]byte, PublicKeySize-1)...), round, good, ErrKey},
	}, func(t *testing.T, tc struct {
		key       []byte
		round     uint64
		signature []byte
		want      error
	},
	) {
		randomness, err := Verify(tc.key, tc.round, tc.signature)
		check.Error(t, "verify", err, tc.want)
		check.Same(t, "randomness", randomness, [RandomnessSize]byte{})
	})
}
