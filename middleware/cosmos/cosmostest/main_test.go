package cosmostest

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine of an account ends with Close; a bubble checks that by itself, sockets need this.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
