// Package scenario tests the running engine as its users and its bad luck do.
package scenario

import (
	"testing"

	"flashsale/testkit/shop"
)

func TestMain(m *testing.M) { shop.Main(m) }
