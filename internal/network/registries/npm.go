package registries

import (
	"context"
	"os"
	"regexp"
	"strings"
)

// npmFiles are the files that npm reads for all projects of a user.
var npmFiles = []string{"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc", "~/.npmrc"}

// npmConfigured reads the registry, and those of scopes. Lines with passwords are not looked at.
func npmConfigured(c *collector) {
	files := npmFiles
	for _, key := range []string{"NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_USERCONFIG", "npm_config_globalconfig", "npm_config_userconfig"} {
		if path := c.Env[key]; strings.HasPrefix(path, "/") {
			files = append(files[:len(files):len(files)], path)
		}
	}
	for _, file := range files {
		for _, s := range settings(c.read(file), false) {
			c.npmSetting(file, s.key, s.value)
		}
	}
	for key, value := range c.Env {
		if name, ok := strings.CutPrefix(strings.ToLower(key), "npm_config_"); ok {
			c.npmSetting(key, strings.ReplaceAll(name, "_", "-"), value)
		}
	}
}

func (c *collector) npmSetting(from, key, value string) {
	expanded := os.Expand(value, func(name string) string { return c.Env[name] })
	switch {
	case key == "registry":
		c.index(from, expanded)
	case strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry"):
		c.extra(from, expanded)
	case key == "proxy" || key == "https-proxy" || key == "http-proxy":
		c.proxy(from, expanded)
	}
}

var (
	npmDefinitions = []string{
		"usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
		"usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
		"usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js",
		"usr/share/nodejs/npm/lib/utils/config/definitions.js",
		"usr/share/nodejs/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
		"usr/lib/node_modules/npm/lib/utils/config/definitions.js",
		"usr/local/lib/node_modules/npm/lib/utils/config/definitions.js",
	}
	npmRegistry = regexp.MustCompile(`\('registry', \{\s*default: ['"](https?://[^'"]+)['"]`)
)

// npmDefault finds the registry that npm has without configuration: in its files, or by asking it.
func npmDefault(ctx context.Context, c *collector) {
	for _, file := range npmDefinitions {
		if m := npmRegistry.FindStringSubmatch(c.read("/" + file)); m != nil && c.extra("/"+file, m[1]) {
			return
		}
	}
	registry, _ := c.ask(ctx, "npm", "config", "get", "registry")
	c.extra("npm", registry)
}
