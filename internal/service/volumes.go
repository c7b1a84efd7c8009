package service

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// Volumes are directories that outlive sandboxes and that several share. They are the tenant's of
// the caller; ref is an id or a name.
type Volumes interface {
	// CreateVolume makes a volume. A name that is taken is an error of CodeNameTaken.
	CreateVolume(ctx context.Context, req api.VolumeRequest) (*api.Volume, error)
	// Volumes returns the volumes in the order of their names.
	Volumes(ctx context.Context) ([]api.Volume, error)
	// GetVolume returns a volume.
	GetVolume(ctx context.Context, ref string) (*api.Volume, error)
	// RemoveVolume removes a volume with its files: not one that a sandbox has, which is an error of
	// CodeConflict.
	RemoveVolume(ctx context.Context, ref string) error
	VolumeFiles
}

// VolumeFiles are the files of volumes, without a sandbox. Symbolic links are not followed. What is
// not there is an error of CodeNotFound.
type VolumeFiles interface {
	// VolumeStat describes what is at a path.
	VolumeStat(ctx context.Context, ref, path string) (*api.VolumeEntry, error)
	// VolumeList describes what is in a directory, and so many levels deep.
	VolumeList(ctx context.Context, ref, path string, depth int) ([]api.VolumeEntry, error)
	// VolumeMkdir makes a directory.
	VolumeMkdir(ctx context.Context, ref, path string, o api.VolumeFileOptions) (*api.VolumeEntry, error)
	// VolumeChange changes owner, group and mode.
	VolumeChange(ctx context.Context, ref, path string, o api.VolumeFileOptions) (*api.VolumeEntry, error)
	// VolumeRemove removes what is at a path, with all that is in it.
	VolumeRemove(ctx context.Context, ref, path string) error
	// VolumeRead opens a file, which the caller closes.
	VolumeRead(ctx context.Context, ref, path string) (io.ReadCloser, *api.VolumeEntry, error)
	// VolumeWrite replaces the contents of a file when all of in was read.
	VolumeWrite(ctx context.Context, ref, path string, in io.Reader, o api.VolumeFileOptions) (*api.VolumeEntry, error)
}
