package registries

import (
	"context"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// cargoConfig is what a configuration of cargo says about registries.
type cargoConfig struct {
	Source map[string]struct {
		Registry    string `toml:"registry"`
		ReplaceWith string `toml:"replace-with"`
	} `toml:"source"`
	Registries map[string]struct {
		Index string `toml:"index"`
	} `toml:"registries"`
	HTTP struct {
		Proxy string `toml:"proxy"`
	} `toml:"http"`
}

// cargoConfigured reads the configuration of cargo for all projects of a user.
func cargoConfigured(c *collector) {
	homes := []string{"~/.cargo", "/usr/local/cargo"}
	if home := c.Env["CARGO_HOME"]; strings.HasPrefix(home, "/") {
		homes = append(homes, home)
	}
	for _, home := range homes {
		for _, file := range []string{home + "/config.toml", home + "/config"} {
			c.cargoFile(file)
		}
	}
	for key, value := range c.Env {
		if strings.HasPrefix(key, "CARGO_REGISTRIES_") && strings.HasSuffix(key, "_INDEX") {
			c.extra(key, value)
		}
	}
	c.proxy("CARGO_HTTP_PROXY", c.Env["CARGO_HTTP_PROXY"])
}

func (c *collector) cargoFile(file string) {
	var conf cargoConfig
	if _, err := toml.Decode(c.read(file), &conf); err != nil {
		c.problem(file, "it is no TOML of cargo")
		return
	}
	for _, s := range conf.Source {
		c.extra(file, s.Registry)
		c.replaced = c.replaced || s.ReplaceWith != ""
	}
	for _, r := range conf.Registries {
		c.extra(file, r.Index)
	}
	c.proxy(file, conf.HTTP.Proxy)
}

// cargoIndex is the directory of an index among the files of cargo, by whose name it has its host.
var cargoIndex = regexp.MustCompile(`registry/index/([A-Za-z0-9.-]+)-[0-9a-f]{16}`)

// cargoDefault finds the registry that cargo has without configuration by the directories that it
// keeps indexes in: an offline search makes it tell where it looks.
func cargoDefault(ctx context.Context, c *collector) {
	for _, home := range []string{strings.Trim(c.Home, "/") + "/.cargo", "usr/local/cargo", strings.Trim(c.Env["CARGO_HOME"], "/")} {
		for _, dir := range c.glob(home + "/registry/index/*") {
			if m := cargoIndex.FindStringSubmatch(dir); m != nil && c.extra("/"+dir, "https://"+m[1]) {
				return
			}
		}
	}
	_, log := c.ask(ctx, "env", "CARGO_LOG=cargo::sources::registry=debug", "CARGO_NET_OFFLINE=true", "cargo", "info", "--registry", "crates-io", "a")
	if m := cargoIndex.FindStringSubmatch(log); m != nil {
		c.extra("cargo", "https://"+m[1])
	}
}
