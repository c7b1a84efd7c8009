package volumes

import (
	"errors"
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

// Mount mounts volumes in a sandbox, and makes the directories that they are at. It does not wait
// for the daemon.
func Mount(ctx context.Context, k *kern.Kernel, client *Client, mounts []wire.VolumeMount) error {
	if len(mounts) == 0 {
		return nil
	}
	root, err := k.Root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := k.RootCredentials()
	for _, m := range mounts {
		for end := 1; end <= len(m.Path); end++ {
			if end < len(m.Path) && m.Path[end] != '/' {
				continue
			}
			err := k.MakeDir(ctx, creds, root, m.Path[:end], 0o755)
			if linuxerr.Equals(linuxerr.ENOTDIR, errors.Unwrap(err)) || linuxerr.Equals(linuxerr.ELOOP, errors.Unwrap(err)) {
				return api.Invalid("volumes", "%s leads to no directory in the sandbox", m.Path)
			}
			if err != nil {
				return err
			}
		}
		// gVisor would mount a directory on a file, too.
		st, err := k.VFS().StatAt(ctx, creds, kern.PathAt(root, m.Path), &vfs.StatOptions{Mask: linux.STATX_TYPE})
		if err != nil || st.Mode&linux.S_IFMT != linux.S_IFDIR {
			return api.Invalid("volumes", "%s leads to no directory in the sandbox", m.Path)
		}
		_, err = k.VFS().MountAt(ctx, creds, "none", kern.PathAt(root, m.Path), Name, &vfs.MountOptions{
			Flags: vfs.MountFlags{NoSUID: true, NoDev: true}, ReadOnly: m.ReadOnly,
			GetFilesystemOptions: vfs.GetFilesystemOptions{InternalData: Source{client, m.Volume}, InternalMount: true},
		})
		if err != nil {
			return fmt.Errorf("mount a volume at %s: %w", m.Path, err)
		}
	}
	return nil
}
