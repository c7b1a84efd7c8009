package api

import (
	"path"
	"slices"
	"strings"
)

// ImageConfig is the configuration of an image. Sandboxes have its environment, directory and user. The other
// fields are kept for clients and for exports.
type ImageConfig struct {
	Env         []string          `json:"env,omitempty" doc:"environment of commands, as NAME=VALUE"`
	Cmd         []string          `json:"cmd,omitempty" doc:"default arguments"`
	Entry       []string          `json:"entrypoint,omitempty" doc:"default program"`
	Cwd         string            `json:"working_dir,omitempty" doc:"directory in which commands start"`
	User        string            `json:"user,omitempty" doc:"user that commands run as"`
	Labels      map[string]string `json:"labels,omitempty" doc:"labels of the image"`
	Ports       []string          `json:"exposed_ports,omitempty" doc:"ports that its program listens at, as 80/tcp; for information only"`
	VolumePaths []string          `json:"volume_paths,omitempty" doc:"directories for data that outlives a container; for information only"`
	StopSignal  string            `json:"stop_signal,omitempty" doc:"signal that ends its program; for information only"`
	Healthcheck *Healthcheck      `json:"healthcheck,omitempty" doc:"command that tells whether its program works; for information only"`
}

// Healthcheck is the command by which a container is found healthy. Ramet keeps it and does not run it.
type Healthcheck struct {
	Test          []string `json:"test,omitempty" doc:"NONE, or CMD with arguments, or CMD-SHELL with a text"`
	IntervalMS    int64    `json:"interval_ms,omitempty" minimum:"0" doc:"time between checks"`
	TimeoutMS     int64    `json:"timeout_ms,omitempty" minimum:"0" doc:"time after which a check has failed"`
	StartPeriodMS int64    `json:"start_period_ms,omitempty" minimum:"0" doc:"time in which failures do not count"`
	Retries       int      `json:"retries,omitempty" minimum:"0" doc:"failures in a row that make it unhealthy"`
}

// maxImageConfig bounds all texts of a configuration, in bytes.
const maxImageConfig = 1 << 20

// Valid returns a CodeInvalid error that names a field below field unless c can be the configuration of an image.
func (c *ImageConfig) Valid(field string) error {
	size := 0
	texts := slices.Concat(c.Env, c.Cmd, c.Entry, c.Ports, c.VolumePaths, []string{c.Cwd, c.User, c.StopSignal})
	for k, v := range c.Labels {
		texts = append(texts, k, v)
	}
	if c.Healthcheck != nil {
		texts = append(texts, c.Healthcheck.Test...)
	}
	for _, text := range texts {
		if strings.ContainsRune(text, 0) {
			return Invalid(field, "a text has a NUL byte")
		}
		size += len(text)
	}
	if size > maxImageConfig {
		return Invalid(field, "the configuration has %d bytes: at most %d are allowed", size, maxImageConfig)
	}
	for _, kv := range c.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return Invalid(field+".env", "%q is not NAME=VALUE", kv)
		}
	}
	if c.Cwd != "" && !path.IsAbs(c.Cwd) {
		return Invalid(field+".working_dir", "%q is not an absolute path", c.Cwd)
	}
	return nil
}
