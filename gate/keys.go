package gate

import (
	"hash/crc32"
	"strconv"

	"flashsale/model"
)

// A shard's keys contain its hash tag in braces, so that on a Cluster one script may use them together.

// tagOf returns the part of the keys that names a shard. It begins with the hash tag in braces, usually the sale's id. In a
// campaign the hash tag is the campaign's id, so that one script may use keys of all its sales, and the sale's id follows. If
// there are several shards, their numbers are in the hash tags, so that a Cluster can spread them over its nodes.
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

// homeOf returns the shard that has a user's data. The result must not change while the sale's gate exists.
func homeOf(userID string, shards int) int {
	if shards == 1 {
		return 0
	}
	return int(crc32.ChecksumIEEE([]byte(userID)) % uint32(shards)) //nolint:gosec // 1 to model.MaxShards
}

func gateKey(tag string) string   { return "fs:" + tag + ":gate" }
func unitsKey(tag string) string  { return "fs:" + tag + ":units" }
func streamKey(tag string) string { return "fs:" + tag + ":stream" }

// keysOf returns the keys of a shard's gate, units and stream, in the order in which scripts expect them.
func keysOf(tag string) []string { return []string{gateKey(tag), unitsKey(tag), streamKey(tag)} }

// idField returns the field of an order's id in the hash of units. The space keeps it from being the field of a user, whose id
// contains no space (model.ValidUserID).
func idField(orderID string) string { return " " + orderID }

// userFields is a pattern of Redis for the fields of users in the hash of units.
const userFields = "[^ ]*"

// stagedKey returns the key in which one try of a rebuild stages the contents of "key".
func stagedKey(key, try string) string { return key + ":staged-" + try }

// countersKey returns the key of the counters of requests. On a Cluster each shard has one. Otherwise all sales share one, so
// that a script counts for many sales together.
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
