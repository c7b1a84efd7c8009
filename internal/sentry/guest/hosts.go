package guest

import (
	"fmt"
	"io"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/kern"
)

// maxHosts bounds how much is read of /etc/hosts, in bytes. Lists of blocked hosts have some MiB.
const maxHosts = 16 << 20

// readHosts returns the contents of /etc/hosts. They are empty if it is missing, or no regular file.
func readHosts(ctx context.Context, k *kern.Kernel, name string) (string, error) {
	root, err := k.Root(ctx)
	if err != nil {
		return "", err
	}
	defer root.DecRef(ctx)
	file, err := k.VFS().OpenAt(ctx, k.RootCredentials(), kern.PathAt(root, name), &vfs.OpenOptions{
		Flags: linux.O_RDONLY | linux.O_NONBLOCK, // it may be a pipe, and nothing would end the wait for its writer
	})
	if linuxerr.Equals(linuxerr.ENOENT, err) || linuxerr.Equals(linuxerr.ELOOP, err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.DecRef(ctx)
	st, err := file.Stat(ctx, vfs.StatOptions{Mask: linux.STATX_TYPE})
	if err != nil || linux.FileMode(st.Mode).FileType() != linux.ModeRegular {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(kern.FileReader(ctx, file), maxHosts+1))
	if err == nil && len(text) > maxHosts {
		err = fmt.Errorf("it has more than %d MiB", maxHosts>>20)
	}
	return string(text), err
}
