package model

// Instance is what a running instance reports about itself. All counts are since its start.
type Instance struct {
	URL           string            `json:"url"`
	Version       string            `json:"version"`
	Secrets       string            `json:"secrets"` // equal on instances with the same secrets; reveals nothing else
	Strategy      string            `json:"strategy"`
	GateReachable bool              `json:"gate_reachable"`
	Purchases     map[Verdict]int64 `json:"purchases"` // purchase requests that passed middleware and handler, by verdict
	// Sales counts, by verdict, all purchase requests to each sale in memory, also those that the middleware refused.
	Sales map[string]map[Verdict]int64 `json:"sales"`
	// Stages has a list of counts for each stage: for each bound of the latency, how many of the measured requests
	// (transactions, for the settle) passed the stage within the bound, and as the last element how many passed it in all.
	Stages       map[string][]uint64 `json:"stages"`
	ReportedAtMs int64               `json:"reported_at_ms"`
}
