package main

import (
	"runtime/debug"

	"ramet.dev/ramet/internal/cli"
)

// Set by the linker: -X main.version=… -X main.commit=…
var (
	version string
	commit  string
)

// commitLength is the number of characters of a commit that are shown.
const commitLength = 12

// buildVersion returns the version that the linker set, or else the one that the go command
// recorded in the binary.
func buildVersion() cli.Version {
	v, c := version, commit
	info, ok := debug.ReadBuildInfo()
	if ok && v == "" {
		v = info.Main.Version
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if ok && c == "" {
		c = revision(info.Settings)
	}
	return cli.NewVersion(v, c)
}

func revision(settings []debug.BuildSetting) string {
	c, dirty := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			c = s.Value[:min(commitLength, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if c == "" {
		return ""
	}
	return c + dirty
}
