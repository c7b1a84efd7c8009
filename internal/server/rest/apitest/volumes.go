package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// VolumeFuncs implement service.Volumes, but for the files of volumes.
type VolumeFuncs struct {
	CreateVolumeFunc func(context.Context, api.VolumeRequest) (*api.Volume, error)
	VolumesFunc      func(context.Context) ([]api.Volume, error)
	GetVolumeFunc    func(context.Context, string) (*api.Volume, error)
	RemoveVolumeFunc func(context.Context, string) error
}

// CreateVolume implements service.Volumes.
func (s *VolumeFuncs) CreateVolume(ctx context.Context, req api.VolumeRequest) (*api.Volume, error) {
	return call(s.CreateVolumeFunc != nil, func() (*api.Volume, error) { return s.CreateVolumeFunc(ctx, req) })
}

// Volumes implements service.Volumes.
func (s *VolumeFuncs) Volumes(ctx context.Context) ([]api.Volume, error) {
	return call(s.VolumesFunc != nil, func() ([]api.Volume, error) { return s.VolumesFunc(ctx) })
}

// GetVolume implements service.Volumes.
func (s *VolumeFuncs) GetVolume(ctx context.Context, ref string) (*api.Volume, error) {
	return call(s.GetVolumeFunc != nil, func() (*api.Volume, error) { return s.GetVolumeFunc(ctx, ref) })
}

// RemoveVolume implements service.Volumes.
func (s *VolumeFuncs) RemoveVolume(ctx context.Context, ref string) error {
	return do(s.RemoveVolumeFunc != nil, func() error { return s.RemoveVolumeFunc(ctx, ref) })
}

// VolumeStat implements service.VolumeFiles.
func (*VolumeFuncs) VolumeStat(context.Context, string, string) (*api.VolumeEntry, error) {
	return nil, errUnset
}

// VolumeList implements service.VolumeFiles.
func (*VolumeFuncs) VolumeList(context.Context, string, string, int) ([]api.VolumeEntry, error) {
	return nil, errUnset
}

// VolumeMkdir implements service.VolumeFiles.
func (*VolumeFuncs) VolumeMkdir(context.Context, string, string, api.VolumeFileOptions) (*api.VolumeEntry, error) {
	return nil, errUnset
}

// VolumeChange implements service.VolumeFiles.
func (*VolumeFuncs) VolumeChange(context.Context, string, string, api.VolumeFileOptions) (*api.VolumeEntry, error) {
	return nil, errUnset
}

// VolumeRemove implements service.VolumeFiles.
func (*VolumeFuncs) VolumeRemove(context.Context, string, string) error { return errUnset }

// VolumeRead implements service.VolumeFiles.
func (*VolumeFuncs) VolumeRead(context.Context, string, string) (io.ReadCloser, *api.VolumeEntry, error) {
	return nil, nil, errUnset
}

// VolumeWrite implements service.VolumeFiles.
func (*VolumeFuncs) VolumeWrite(context.Context, string, string, io.Reader, api.VolumeFileOptions) (*api.VolumeEntry, error) {
	return nil, errUnset
}
