package image

import (
	"maps"
	"path"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/catalog"
)

// Config has the environment, command and user of an image.
type Config = catalog.Config

// describe returns the image of a record with some of its names.
func describe(r catalog.Record, id string, names []string) api.Image {
	return api.Image{
		ID: id, Names: names, Digest: "sha256:" + r.Digest, SizeBytes: r.Size, CreatedAt: r.Created, Source: r.Source,
		ImageConfig: api.ImageConfig{
			Env: r.Config.Env, Cmd: r.Config.Cmd, Entry: r.Config.Entrypoint, Cwd: r.Config.WorkingDir, User: r.Config.User,
			Labels: r.Config.Labels, Ports: r.Config.Ports, VolumePaths: r.Config.VolumePaths, StopSignal: r.Config.StopSignal, Healthcheck: r.Config.Healthcheck,
		},
	}
}

// ConfigOf returns a configuration as it is stored.
func ConfigOf(c *api.ImageConfig) *Config {
	return &Config{
		Env: c.Env, Cmd: c.Cmd, Entrypoint: c.Entry, WorkingDir: c.Cwd, User: c.User,
		Labels: c.Labels, Ports: c.Ports, VolumePaths: c.VolumePaths, StopSignal: c.StopSignal, Healthcheck: c.Healthcheck,
	}
}

// configOf returns the configuration of a container image.
func configOf(c *v1.Config) Config {
	config := Config{
		Env: c.Env, Cmd: c.Cmd, Entrypoint: c.Entrypoint, User: c.User, Labels: c.Labels, StopSignal: c.StopSignal,
		Ports: slices.Sorted(maps.Keys(c.ExposedPorts)), VolumePaths: slices.Sorted(maps.Keys(c.Volumes)),
	}
	if c.WorkingDir != "" {
		config.WorkingDir = path.Join("/", c.WorkingDir)
	}
	if h := c.Healthcheck; h != nil {
		config.Healthcheck = &api.Healthcheck{Test: h.Test, IntervalMS: h.Interval.Milliseconds(), TimeoutMS: h.Timeout.Milliseconds(), StartPeriodMS: h.StartPeriod.Milliseconds(), Retries: h.Retries}
	}
	return config
}
