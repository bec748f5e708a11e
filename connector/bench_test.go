package connector

import (
	"testing"

	"runnerd/task"
)

// BenchmarkCall is one call through a real stdio server of the Go SDK.
func BenchmarkCall(b *testing.B) {
	p := testPool(b, nil, stdioSpec(b, "good"))
	mustCall(b, p, "echo", "warm")
	for b.Loop() {
		mustCall(b, p, "echo", "x")
	}
}

// BenchmarkOpen is the way from nothing to a listed server, guard and Landlock
// included, and back.
func BenchmarkOpen(b *testing.B) {
	spec := stdioSpec(b, "good")
	p := testPool(b, func(o *Options) { o.Protected = []string{o.StateDir, "/etc/runnerd", "/run/runnerd"} }, spec)
	for b.Loop() {
		if err := p.Dial(b.Context(), "x"); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.Set(nil)
		p.Set([]task.Connector{spec})
		b.StartTimer()
	}
}
