package main

import (
	"runtime"
	"runtime/debug"

	"runnerd/text"
)

// version is set by the linker for a release; a build from a checkout names its
// commit instead.
var version = ""

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	text.Fprintf(a.out, "runnerd %s (%s %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
