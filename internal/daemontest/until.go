package daemontest

import (
	"errors"
	"testing"
	"time"
)

// Patience is how long a test waits for another process before it gives up.
const Patience = time.Minute

// Until polls a condition of another process, whose state has no other way to
// be heard of.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting until %s", what)
		}
	}
}

// Must ends the test at an error.
func Must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
