package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// verdict says how a figure stands to its aim.
type verdict string

const (
	unjudged verdict = ""
	met      verdict = "met"
	missed   verdict = "MISSED"
)

// below judges a figure that is to be under a bound.
func below[T int | int64 | float64 | time.Duration](figure, bound T) verdict {
	if figure < bound {
		return met
	}
	return missed
}

// row is one line of the table.
type row struct {
	what, figure, aim string
	verdict           verdict
}

func (b *bench) add(what, figure, aim string, v verdict) {
	b.table = append(b.table, row{what, figure, aim, v})
}

// addMachine says what the figures were taken on: times of a machine that is busy
// with other things mean little, and this shows it.
func (b *bench) addMachine() {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("unknown")
	}
	busy, _, _ := strings.Cut(string(load), " ")
	block := make([]byte, 64<<20)
	begun := time.Now()
	sha256.Sum256(block)
	hashed := time.Since(begun)
	touch(block)
	b.add("this machine", fmt.Sprintf("%d CPUs, load %s, SHA-256 of 64 MiB in %s, %s", runtime.NumCPU(), busy, millis(hashed), filesystem(b.root)), "", unjudged)
	warm := touch(block)
	time.Sleep(time.Second)
	b.add("one page of memory", fmt.Sprintf("%s when just used, %s after a second's rest", micros(warm), micros(touch(block))), "", unjudged)
}

// touch writes to each page once and answers what one took. Some hosts of virtual
// machines take pages back that have not been used for a moment, and then the first
// touch costs far more than the work itself: a daemon that wakes up pays for each.
func touch(block []byte) time.Duration {
	const page = 4096
	begun := time.Now()
	for i := 0; i < len(block); i += page {
		block[i]++
	}
	return time.Since(begun) / time.Duration(len(block)/page)
}

func (b *bench) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "what\tmeasured\taim\t")
	for _, r := range b.table {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.figure, r.aim, r.verdict)
	}
	return w.Flush()
}

// quantile is the value that a share of the sorted or unsorted values does not
// exceed; 0 of none.
func quantile(values []time.Duration, share float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

func micros(d time.Duration) string { return fmt.Sprintf("%.1f µs", d.Seconds()*1e6) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
