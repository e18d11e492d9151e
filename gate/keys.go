package gate

import (
	"hash/crc32"
	"strconv"

	"flashsale/model"
)

// Every key of a shard contains the shard's hash tag in braces, so that on a Redis Cluster one script may use them together.

// tagOf returns the part of the keys that names a shard of a gate: the sale's id as the hash tag. For a sale of a campaign the
// hash tag is the campaign's id, so that one script may use keys of all its sales, and the sale's id follows the braces. If the
// gate has several shards, the shard's number is added to the hash tag, so that a Cluster spreads the shards over its nodes.
func tagOf(gate model.GateRef, shard int) string {
	tag, rest := gate.SaleID, ""
	if gate.CampaignID != "" {
		tag, rest = gate.CampaignID, ":"+gate.SaleID
	}
	if gate.Shards > 1 {
		tag += "." + strconv.Itoa(shard)
	}
	return "{" + tag + "}" + rest
}

// homeOf returns the shard that holds all data of a user. The result must never change while the sale's gate exists.
func homeOf(userID string, shards int) int {
	if shards == 1 {
		return 0
	}
	return int(crc32.ChecksumIEEE([]byte(userID)) % uint32(shards)) //nolint:gosec // 1 to model.MaxShards
}

func gateKey(tag string) string   { return "fs:" + tag + ":gate" }
func unitsKey(tag string) string  { return "fs:" + tag + ":units" }
func streamKey(tag string) string { return "fs:" + tag + ":stream" }

// keysOf returns the keys of a shard's gate, units and stream, in the order in which the scripts expect them.
func keysOf(tag string) []string { return []string{gateKey(tag), unitsKey(tag), streamKey(tag)} }

// idField returns the field of an order's id in the hash of units: the id behind a space. The hash also has a field for each
// user, which is the user's id. A user's id may look like an order's id, but contains no space (model.ValidUserID).
func idField(orderID string) string { return " " + orderID }

// userFields is a pattern of Redis that matches the fields of users in the hash of units, and no others.
const userFields = "[^ ]*"

// stagedKey returns the key in which one try of a rebuild stages what will replace the contents of "key".
func stagedKey(key, try string) string { return key + ":staged-" + try }

// countersKey returns the key of the counters of requests in the present window. On a Cluster each shard has such a key;
// otherwise all sales share one, so that a script counts for many sales at once.
func countersKey(tag string, cluster bool) string {
	if cluster {
		return "fs:" + tag + ":requests"
	}
	return "fs:requests"
}

const (
	controlChannel = "fs:control"
	instancesKey   = "fs:instances"
)

func wakeChannel(instance string) string { return "fs:wake:" + instance }
