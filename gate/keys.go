package gate

import "strconv"

// Every key of a sale has its id as hash tag, so that one script may touch them all on a Redis Cluster.

func gateKey(saleID string) string   { return "fs:{" + saleID + "}:gate" }
func unitsKey(saleID string) string  { return "fs:{" + saleID + "}:units" }
func idsKey(saleID string) string    { return "fs:{" + saleID + "}:ids" }
func streamKey(saleID string) string { return "fs:{" + saleID + "}:stream" }
func doneKey(saleID string) string   { return "fs:{" + saleID + "}:done" }

func counterKey(saleID, userID string) string { return "fs:{" + saleID + "}:requests:" + userID }

// stagedKey is where a rebuild of one epoch gathers what replaces key.
func stagedKey(key string, epoch int64) string { return key + ":epoch-" + strconv.FormatInt(epoch, 10) }

const (
	controlChannel = "fs:control"
	instancesKey   = "fs:instances"
)

func wakeChannel(instance string) string { return "fs:wake:" + instance }
