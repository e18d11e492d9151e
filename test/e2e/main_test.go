// Package e2e tests the built engine: rushes, restarts, Redis with replicas, behind Sentinels and in a Cluster, and nginx.
package e2e

import (
	"testing"

	"flashsale/test/kit/shop"
)

func TestMain(m *testing.M) { shop.Main(m) }
