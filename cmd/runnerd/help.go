package main

import (
	"fmt"
	"reflect"
	"strings"
)

// settingsTable lists every RUNNERD_ variable with its default and meaning.
func settingsTable() string {
	var b strings.Builder
	t := reflect.TypeFor[Settings]()
	for i := range t.NumField() {
		name, rest, _ := strings.Cut(t.Field(i).Tag.Get("env"), ",")
		def := ""
		if _, d, ok := strings.Cut(rest, "default="); ok {
			def = " (" + d + ")"
		}
		fmt.Fprintf(&b, "  %-24s %s%s\n", "RUNNERD_"+name, t.Field(i).Tag.Get("help"), def)
	}
	return b.String()
}

// nearest is the name that a person may have meant: at most a third of its
// letters away. Empty if none is near.
func nearest(name string, known []string) string {
	best, least := "", 1+len(name)/3
	for _, k := range known {
		if d := distance(name, k); d <= least {
			best, least = k, d-1
		}
	}
	return best
}

// distance is the edit distance of two short names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
