//go:build !crashtest

package daemon

import "time"

// wallClock is the machine's; a build with the tag crashtest, which only tests
// make, can move it.
func wallClock(func(string) string) func() time.Time { return time.Now }
