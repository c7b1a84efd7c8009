package hostuser

import "golang.org/x/sys/unix"

// MayBecome reports whether this process may become another user and group. Root of a container
// may not if the container was started without CAP_SETUID and CAP_SETGID.
func MayBecome() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	return data[0].Effective&needed == needed
}
