package connector

import (
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be what tests need: servers of every kind of misbehaviour.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		// os.Exit would sleep for a second in a race build.
		switch os.Args[1] {
		case serverVerb:
			syscall.Exit(testServer(os.Args[2:]))
		case daemonVerb:
			syscall.Exit(testDaemon(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}
