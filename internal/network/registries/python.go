package registries

import (
	"context"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// pipFiles are the files that pip and uv read for all projects of a user, the weakest first.
var (
	pipFiles = []string{"/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"}
	uvFiles  = []string{"/etc/uv/uv.toml", "~/.config/uv/uv.toml"}
)

// pipConfigured reads the configuration of pip and uv.
func pipConfigured(c *collector) {
	files := pipFiles
	for _, key := range []string{"PIP_CONFIG_FILE", "VIRTUAL_ENV"} {
		if path := c.Env[key]; strings.HasPrefix(path, "/") {
			files = append(files[:len(files):len(files)], path+map[string]string{"VIRTUAL_ENV": "/pip.conf"}[key])
		}
	}
	for _, file := range files {
		for _, s := range settings(c.read(file), true) {
			c.pipSetting(file, s.key, s.value)
		}
	}
	for _, key := range []string{"index-url", "extra-index-url", "find-links", "proxy"} {
		name := "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		c.pipSetting(name, key, c.Env[name])
	}
	for _, file := range uvFiles {
		c.uvFile(file)
	}
	for _, name := range []string{"UV_DEFAULT_INDEX", "UV_INDEX_URL"} {
		c.index(name, afterName(c.Env[name]))
	}
	for _, name := range []string{"UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"} {
		for _, a := range strings.Fields(c.Env[name]) {
			c.extra(name, afterName(a))
		}
	}
}

// afterName returns the address of an index that may have a name before it: NAME=ADDRESS.
func afterName(s string) string {
	if name, address, ok := strings.Cut(s, "="); ok && !strings.Contains(name, ":") {
		return address
	}
	return s
}

func (c *collector) pipSetting(from, key, value string) {
	for _, address := range strings.Fields(value) {
		switch key {
		case "index-url":
			c.index(from, address)
		case "extra-index-url", "find-links":
			c.extra(from, address)
		case "proxy":
			c.proxy(from, address)
		}
	}
}

// uvConfig is what a file of uv says about indexes.
type uvConfig struct {
	uvIndexes
	Pip uvIndexes `toml:"pip"`
}

type uvIndexes struct {
	IndexURL      string   `toml:"index-url"`
	ExtraIndexURL []string `toml:"extra-index-url"`
	FindLinks     []string `toml:"find-links"`
	Index         []struct {
		URL     string `toml:"url"`
		Default bool   `toml:"default"`
	} `toml:"index"`
}

func (c *collector) uvFile(file string) {
	var conf uvConfig
	if _, err := toml.Decode(c.read(file), &conf); err != nil {
		c.problem(file, "it is no TOML of uv")
		return
	}
	for _, part := range []uvIndexes{conf.uvIndexes, conf.Pip} {
		c.index(file, part.IndexURL)
		for _, a := range append(part.ExtraIndexURL, part.FindLinks...) {
			c.extra(file, a)
		}
		for _, i := range part.Index {
			if i.Default {
				c.index(file, i.URL)
			} else {
				c.extra(file, i.URL)
			}
		}
	}
}

var (
	// pipIndexFile has the default index, and the host that it keeps files on.
	pipIndexFile = []string{
		"usr/lib/python3*/*-packages/pip/_internal/models/index.py",
		"usr/local/lib/python3*/*-packages/pip/_internal/models/index.py",
		"opt/*/lib/python3*/*-packages/pip/_internal/models/index.py",
	}
	pipIndex = regexp.MustCompile(`(?m)^PyPI = PackageIndex\(\s*"(https?://[^"]+)",\s*file_storage_domain="([^"]+)"`)
	// pipHelp is the place in the text of pip install --help, with single spaces.
	pipHelp = regexp.MustCompile(`--index-url <url> [^)]*\(default (https?://[^ )]+)\)`)
)

// pipDefault finds the index that pip has without configuration: in its files, or by its help.
func pipDefault(ctx context.Context, c *collector) {
	known := false
	for _, pattern := range pipIndexFile {
		for _, file := range c.glob(pattern) {
			if m := pipIndex.FindStringSubmatch(c.read("/" + file)); m != nil {
				known = c.extra("/"+file, strings.TrimSuffix(m[1], "/")+"/simple") || known
				c.extra("/"+file, "https://"+m[2])
			}
		}
	}
	if known {
		return
	}
	help, _ := c.ask(ctx, "pip", "install", "--help")
	if m := pipHelp.FindStringSubmatch(strings.Join(strings.Fields(help), " ")); m != nil {
		c.extra("pip", m[1])
	}
}
