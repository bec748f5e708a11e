package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"runnerd/builtin"
)

// TestMain serves a builtin connector where a daemon under test starts this binary
// for one.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "runnerd" && len(os.Args) > 2 && os.Args[1] == "mcp" {
		if err := builtin.Serve(context.Background(), os.Args[2], os.Args[3:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0) // os.Exit would sleep for a second in a race build
	}
	goleak.VerifyTestMain(m)
}
