package gate

import (
	"hash/crc32"
	"strconv"

	"flashsale/model"
)

// Every key of a part of a sale's gate contains the part's tag in braces, so that on a Redis Cluster one script may
// use all keys of the part.

// tagOf returns the hash tag of a part of a gate. If the gate has one part only, the tag is the sale's id. Several
// parts have different tags, so that a Cluster spreads them over its nodes.
func tagOf(gate model.GateRef, part int) string {
	if gate.Parts == 1 {
		return gate.SaleID
	}
	return gate.SaleID + "." + strconv.Itoa(part)
}

// homeOf returns the part that holds all data of a user. The result must never change while the sale's gate exists.
func homeOf(userID string, parts int) int {
	return int(crc32.ChecksumIEEE([]byte(userID)) % uint32(parts)) //nolint:gosec // 1 to model.MaxParts
}

func gateKey(tag string) string   { return "fs:{" + tag + "}:gate" }
func unitsKey(tag string) string  { return "fs:{" + tag + "}:units" }
func idsKey(tag string) string    { return "fs:{" + tag + "}:ids" }
func streamKey(tag string) string { return "fs:{" + tag + "}:stream" }

func counterKey(tag, userID string) string { return "fs:{" + tag + "}:requests:" + userID }

// stagedKey returns the key in which one try of a rebuild stages the new contents of key.
func stagedKey(key, try string) string { return key + ":staged-" + try }

const (
	controlChannel = "fs:control"
	instancesKey   = "fs:instances"
)

func wakeChannel(instance string) string { return "fs:wake:" + instance }
