//go:build !crashtest

package daemon

// breakable does nothing; a build with the tag crashtest, which only tests make,
// ends the process at a named durable step.
func breakable(s stores, _ func(string) string) stores { return s }
