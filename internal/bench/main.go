// Package main measures the daemon as it runs and prints one table: how late
// tasks start, what an idle daemon takes, how long a start takes, how many runs a
// second it sustains, what one decision and one dispatched call cost. `make
// bench` calls it; nothing else does.
//
// It builds the real binary and runs `serve` in directories of its own, with a
// model that answers from a script and connectors that the binary serves itself,
// so that nothing but this machine is measured. Every wait has a deadline, and
// what was started and written is gone at the end. It promises no verdict: a
// missed aim is a line in the table, not an exit code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options are what a person can ask for.
type options struct {
	dir    string        // where sites are made; the disk below it is measured
	binary string        // a daemon that was built before; empty: build one
	only   []string      // measurements to make; empty: all
	watch  time.Duration // how long an idle daemon is watched
	keep   bool          // leave the sites behind
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", os.TempDir(), "directory to work in; its disk is part of what is measured")
	flag.StringVar(&o.binary, "binary", "", "daemon to measure; empty builds it")
	flag.DurationVar(&o.watch, "watch", 2*time.Minute, "how long an idle daemon is watched")
	flag.BoolVar(&o.keep, "keep", false, "leave the directories behind")
	flag.Func("only", "measurements to make, with commas: "+strings.Join(names(), ","), func(s string) error {
		o.only = strings.Split(s, ",")
		for _, name := range o.only {
			if !slices.Contains(names(), name) {
				return fmt.Errorf("no measurement %q", name)
			}
		}
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measurement is one part of the table.
type measurement struct {
	name  string
	limit time.Duration
	make  func(context.Context, *bench) error
}

var measurements = []measurement{
	{"decide", time.Minute, decisions},
	{"call", time.Minute, calls},
	{"lateness", 20 * time.Minute, lateness},
	{"idle", 30 * time.Minute, idle},
	{"ready", 10 * time.Minute, ready},
	{"runs", 10 * time.Minute, throughput},
	{"history", 20 * time.Minute, history},
}

func names() []string {
	var all []string
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return all
}

// bench is one run of the program.
type bench struct {
	options
	root  string // holds every site of this run
	sites int
	table []row
}

func run(ctx context.Context, o options) (err error) {
	b := &bench{options: o}
	if b.root, err = os.MkdirTemp(o.dir, "runnerd-bench-*"); err != nil {
		return fmt.Errorf("make a directory to work in: %w", err)
	}
	defer func() {
		if !o.keep {
			err = errors.Join(err, os.RemoveAll(b.root))
		}
	}()
	if err := b.build(ctx); err != nil {
		return err
	}
	b.addMachine()
	for _, m := range measurements {
		if len(o.only) > 0 && !slices.Contains(o.only, m.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", m.name)
		if err := b.measure(ctx, m); err != nil {
			b.add(m.name, "failed: "+err.Error(), "", unjudged)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return b.print(os.Stdout)
}

func (b *bench) measure(ctx context.Context, m measurement) error {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	return m.make(ctx, b)
}

// build makes the binary as `make build` does, if none was given.
func (b *bench) build(ctx context.Context) error {
	if b.binary != "" {
		path, err := filepath.Abs(b.binary)
		b.binary = path
		return err
	}
	b.binary = filepath.Join(b.root, "runnerd")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.binary, "runnerd/cmd/runnerd")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, out)
	}
	return nil
}
