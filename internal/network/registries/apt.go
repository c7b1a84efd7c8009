package registries

import (
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/image/debian/control"
)

// aptSources reads apt's source files in both of their formats, and the proxies of its
// configuration. Sources of every kind count, as apt reads all of them when it updates.
func aptSources(c *collector) {
	files := append(c.glob("etc/apt/sources.list"), c.glob("etc/apt/sources.list.d/*")...)
	for _, file := range files {
		var addresses []string
		var err error
		switch text := ""; path.Ext(file) {
		case ".list":
			text = c.read("/" + file)
			addresses = oneLineSources(text)
		case ".sources":
			text = c.read("/" + file)
			addresses, err = deb822Sources(text)
		}
		if err != nil {
			c.problem("/"+file, "%v", err)
		}
		for _, a := range addresses {
			c.extra("/"+file, a)
		}
	}
	for _, file := range append(c.glob("etc/apt/apt.conf.d/*"), c.glob("etc/apt/apt.conf")...) {
		for _, p := range aptProxies(c.read("/" + file)) {
			c.proxy("/"+file, p)
		}
	}
}

// oneLineSources returns the addresses of lines such as "deb [options] ADDRESS suite component".
func oneLineSources(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
		if kind != "deb" && kind != "deb-src" {
			continue
		}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if words := strings.Fields(rest); len(words) > 0 {
			out = append(out, words[0])
		}
	}
	return out
}

// deb822Sources returns the addresses of stanzas with a field URIs.
func deb822Sources(text string) ([]string, error) {
	r := control.NewReader("sources", strings.NewReader(text))
	r.Comments = true
	var out []string
	for {
		stanza, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if !strings.EqualFold(stanza.Get("Enabled"), "no") {
			out = append(out, strings.Fields(stanza.Get("URIs"))...)
		}
	}
}

// aptProxies returns the addresses of settings such as Acquire::http::Proxy "ADDRESS", in both
// forms of apt's configuration.
func aptProxies(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//") || !strings.Contains(strings.ToLower(line), "proxy") {
			continue
		}
		parts := strings.Split(line, `"`)
		for i := 1; i < len(parts); i += 2 {
			if a := parts[i]; strings.HasPrefix(a, "http://") || strings.HasPrefix(a, "https://") {
				out = append(out, a)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
