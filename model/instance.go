package model

// Instance is what a running instance reports about itself. All counts are since its start.
type Instance struct {
	URL           string            `json:"url"`
	Version       string            `json:"version"`
	Secrets       string            `json:"secrets"` // a fingerprint, equal on instances with the same secrets
	Strategy      string            `json:"strategy"`
	GateReachable bool              `json:"gate_reachable"`
	Purchases     map[Verdict]int64 `json:"purchases"` // requests that reached the service, by verdict
	// Sales counts requests to watched sales, by sale and verdict, also those that the middleware refused.
	Sales map[string]map[Verdict]int64 `json:"sales"`
	// Stages has a list of counts for each stage: how many of the measured requests took at most each bound of the latency, and as
	// the last element how many there were in all. For the settle they are transactions.
	Stages       map[string][]uint64 `json:"stages"`
	ReportedAtMs int64               `json:"reported_at_ms"`
}
