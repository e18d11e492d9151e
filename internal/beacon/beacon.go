// Package beacon gets and checks rounds of drand, a network that publishes random values. The scheme is that of drand's chain
// quicknet: bls-unchained-g1-rfc9380.
package beacon

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/cloudflare/circl/sign/bls"
)

// Quicknet is the public key of drand's chain quicknet, in hex. The hash of the chain is
// 52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971.
const Quicknet = "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c" +
	"8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb" +
	"5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"

// Sizes in bytes: a compressed point of G2, a compressed point of G1, and a SHA-256.
const (
	PublicKeySize  = 96
	SignatureSize  = 48
	RandomnessSize = sha256.Size
)

var (
	// ErrKey means that the public key, or from NewSource a field of the Chain, is not valid.
	ErrKey = errors.New("the beacon's public key is not valid")
	// ErrSignature means that the signature is not that of the round by the key.
	ErrSignature = errors.New("the beacon's signature does not belong to this round and public key")
)

// Verify checks the signature of a round and returns the randomness of the round, which is the SHA-256 of the signature.
// The signed message is the SHA-256 of the round as 8 bytes, big-endian. The signature must be compressed, so that a round has
// one valid signature. The error is ErrKey or ErrSignature.
func Verify(publicKey []byte, round uint64, signature []byte) (randomness [RandomnessSize]byte, err error) {
	var key bls.PublicKey[bls.KeyG2SigG1]
	if len(publicKey) != PublicKeySize || key.UnmarshalBinary(publicKey) != nil {
		return randomness, ErrKey
	}
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, round))
	if len(signature) != SignatureSize || !bls.Verify(&key, message[:], signature) {
		return randomness, ErrSignature
	}
	return sha256.Sum256(signature), nil
}
