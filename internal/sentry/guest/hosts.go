package guest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sentry/kern"
)

// hostsMark ends the line of /etc/hosts that belongs to Ramet.
const hostsMark = "# ramet"

// hostsOf returns the contents of /etc/hosts, which is old, for a sandbox that is called hostname. Only the line that
// Ramet wrote is replaced. localhost is added if no line names it: many images have no /etc/hosts, as
// container engines write that file themselves.
func hostsOf(old, hostname string) string {
	own := "127.0.1.1\t" + hostname + "\t" + hostsMark + "\n"
	var b strings.Builder
	local, written := false, false
	for line := range strings.Lines(old) {
		if isOwnHost(line) {
			if !written {
				b.WriteString(own)
			}
			written = true
			continue
		}
		entry, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		local = local || len(fields) > 1 && slices.Contains(fields[1:], "localhost")
		b.WriteString(line)
	}
	text := b.String()
	if !written {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += own
	}
	if !local {
		text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + text
	}
	return text
}

// isOwnHost reports whether Ramet wrote line. A line with a name that was added is the user's.
func isOwnHost(line string) bool {
	rest, marked := strings.CutSuffix(strings.TrimRight(line, "\r\n"), hostsMark)
	fields := strings.Fields(rest)
	return marked && len(fields) == 2 && fields[0] == "127.0.1.1"
}

// maxHosts bounds how much is read of /etc/hosts, in bytes. Lists of blocked hosts have some MiB.
const maxHosts = 16 << 20

// readHosts returns the contents of /etc/hosts, or of another such file. They are empty if it is missing, or no regular file.
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
