// Package e2e tests the running engine as its users and its bad luck do.
package e2e

import (
	"testing"

	"flashsale/test/kit/shop"
)

func TestMain(m *testing.M) { shop.Main(m) }
