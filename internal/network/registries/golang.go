package registries

import (
	"context"
	"strings"
)

// goFiles are the settings of go env: those of the user, and those that go came with.
var goFiles = []string{"~/.config/go/env", "/usr/local/go/go.env", "/usr/lib/go/go.env"}

// goConfigured reads GOPROXY and GOSUMDB as go does: from the environment, then from the files.
func goConfigured(c *collector) {
	files := goFiles
	if path := c.Env["GOENV"]; strings.HasPrefix(path, "/") {
		files = append([]string{path}, files...)
	}
	for _, key := range []string{"GOPROXY", "GOSUMDB"} {
		if value := c.Env[key]; value != "" {
			c.goSetting(key, key, value)
			continue
		}
		for _, file := range append(files[:len(files):len(files)], absolute(c.glob("usr/lib/go-*/go.env"))...) {
			if value := goEnv(c.read(file), key); value != "" {
				c.goSetting(file, key, value)
				break
			}
		}
	}
}

func absolute(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = "/" + p
	}
	return out
}

// goEnv returns the value of a key in a file of lines KEY=VALUE.
func goEnv(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && k == key {
			return v
		}
	}
	return ""
}

// goSetting notes the addresses of a setting. Those of GOPROXY are a list; GOSUMDB is a name, maybe
// with a key behind it, or a name and an address.
func (c *collector) goSetting(from, key, value string) {
	if key == "GOPROXY" {
		for _, a := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' }) {
			c.index(from, strings.TrimSpace(a))
		}
		c.replaced = true // direct and off are settings too
		return
	}
	name, address, _ := strings.Cut(strings.TrimSpace(value), " ")
	name, _, _ = strings.Cut(name, "+")
	switch {
	case address != "":
		c.extra(from, strings.TrimSpace(address))
	case name != "off" && name != "":
		c.extra(from, "https://"+name)
	}
}

// goDefault asks go.
func goDefault(ctx context.Context, c *collector) {
	for _, key := range []string{"GOPROXY", "GOSUMDB"} {
		if value, _ := c.ask(ctx, "go", "env", key); value != "" {
			c.goSetting("go env", key, value)
		}
	}
}
