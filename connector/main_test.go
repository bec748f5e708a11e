package connector

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be what the real one is to a connector: its
// guard; and what tests need: servers of every kind of misbehaviour.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case GuardVerb:
			os.Exit(Guard(os.Args[2:]))
		case serverVerb:
			os.Exit(testServer(os.Args[2:]))
		case daemonVerb:
			os.Exit(testDaemon(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}
