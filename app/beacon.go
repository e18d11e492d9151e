package app

import (
	"encoding/json"
	"fmt"

	"flashsale/internal/beacon"
)

// newBeacon returns the beacon that the settings name.
func (a *App) newBeacon() (*beacon.Source, error) {
	chain := beacon.QuicknetChain()
	if text := a.settings.BeaconChain; text != "" {
		if err := json.Unmarshal([]byte(text), &chain); err != nil {
			return nil, fmt.Errorf("--beacon-chain: %w", err)
		}
	}
	source, err := beacon.NewSource(a.settings.Beacon, chain)
	if err != nil {
		return nil, fmt.Errorf("--beacon-chain: %w", err)
	}
	return source, nil
}
