package image

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/catalog"
)

// Config has the environment, command and user of an image.
type Config = catalog.Config

// describe returns the image of a record with some of its names.
func describe(r catalog.Record, id string, names []string) api.Image {
	return api.Image{
		ID: id, Names: names, Digest: "sha256:" + r.Digest, SizeBytes: r.Size, CreatedAt: r.Created, Source: r.Source,
		Env: r.Config.Env, Cmd: r.Config.Cmd, Entry: r.Config.Entrypoint, Cwd: r.Config.WorkingDir, User: r.Config.User,
	}
}
