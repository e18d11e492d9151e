package gate

import (
	"hash/crc32"
	"strconv"

	"flashsale/model"
)

// Every key of a shard of a sale's gate contains the shard's tag in braces, so that on a Redis Cluster one script may
// use all keys of the shard.

// tagOf returns the hash tag of a shard of a gate. If the gate has one shard only, the tag is the sale's id. Several
// shards have different tags, so that a Cluster spreads them over its nodes.
func tagOf(gate model.GateRef, shard int) string {
	if gate.Shards == 1 {
		return gate.SaleID
	}
	return gate.SaleID + "." + strconv.Itoa(shard)
}

// homeOf returns the shard that holds all data of a user. The result must never change while the sale's gate exists.
func homeOf(userID string, shards int) int {
	return int(crc32.ChecksumIEEE([]byte(userID)) % uint32(shards)) //nolint:gosec // 1 to model.MaxShards
}

func gateKey(tag string) string   { return "fs:{" + tag + "}:gate" }
func unitsKey(tag string) string  { return "fs:{" + tag + "}:units" }
func idsKey(tag string) string    { return "fs:{" + tag + "}:ids" }
func streamKey(tag string) string { return "fs:{" + tag + "}:stream" }

// countersKey returns the key of the counters of all users' requests in the present window.
func countersKey(tag string) string { return "fs:{" + tag + "}:requests" }

// stagedKey returns the key in which one try of a rebuild stages the new contents of key.
func stagedKey(key, try string) string { return key + ":staged-" + try }

const (
	controlChannel = "fs:control"
	instancesKey   = "fs:instances"
)

func wakeChannel(instance string) string { return "fs:wake:" + instance }
