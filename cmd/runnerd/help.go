package main

import (
	"fmt"
	"reflect"
	"strings"

	"runnerd/daemon"
)

// settingsTable lists every RUNNERD_ variable with its default and meaning.
func settingsTable() string {
	var b strings.Builder
	t := reflect.TypeFor[daemon.Settings]()
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
