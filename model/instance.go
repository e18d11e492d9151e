package model

// Instance is what a running instance says of itself. All counts are since its start.
type Instance struct {
	URL           string            `json:"url"`
	Version       string            `json:"version"`
	Secrets       string            `json:"secrets"` // a mark that instances with the same secrets share, and that tells nothing else
	Strategy      string            `json:"strategy"`
	GateReachable bool              `json:"gate_reachable"`
	Purchases     map[Verdict]int64 `json:"purchases"` // that reached the engine, by verdict
	// Sales are the purchase requests to each watched sale by their verdicts, those of the front door included.
	Sales map[string]map[Verdict]int64 `json:"sales"`
	// Stages count the purchases that passed a stage within each bound of a latency, and at the end all of them.
	Stages       map[string][]uint64 `json:"stages"`
	ReportedAtMs int64               `json:"reported_at_ms"`
}
