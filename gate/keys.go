package gate

import (
	"hash/crc32"
	"strconv"
)

// Every key of a part of a sale's gate has its tag in braces, so that one script may touch them all on a Redis Cluster.

// tagOf is the sale's id, unless its gate is in several parts: they have tags of their own, so that a Cluster spreads
// them over its nodes.
func tagOf(saleID string, part, parts int) string {
	if parts == 1 {
		return saleID
	}
	return saleID + "." + strconv.Itoa(part)
}

// homeOf is the part that has all there is of a user. It must stay what it is for as long as gates live.
func homeOf(userID string, parts int) int {
	return int(crc32.ChecksumIEEE([]byte(userID)) % uint32(parts)) //nolint:gosec // 1 to model.MaxParts
}

func gateKey(tag string) string   { return "fs:{" + tag + "}:gate" }
func unitsKey(tag string) string  { return "fs:{" + tag + "}:units" }
func idsKey(tag string) string    { return "fs:{" + tag + "}:ids" }
func streamKey(tag string) string { return "fs:{" + tag + "}:stream" }

func counterKey(tag, userID string) string { return "fs:{" + tag + "}:requests:" + userID }

// stagedKey is where one try of a rebuild gathers what replaces key.
func stagedKey(key, try string) string { return key + ":staged-" + try }

const (
	controlChannel = "fs:control"
	instancesKey   = "fs:instances"
)

func wakeChannel(instance string) string { return "fs:wake:" + instance }
