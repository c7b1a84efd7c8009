package inode

import (
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Inode is a file of any kind while it is in memory. It implements memmap.Mappable.
type Inode struct {
	contents

	// Locks and Watches are the file's, whichever descriptors they were made through.
	Locks   vfs.FileLocks
	Watches vfs.Watches

	// pipe is set for fifos. Protected by mapsMu.
	pipe *pipe.VFSPipe
	// Endpoint is set for bound sockets, before the file has a name.
	Endpoint transport.BoundEndpoint
}

// Remembers returns whether the inode has state that is nowhere else.
func (i *Inode) Remembers() bool { return i.Endpoint != nil || i.Watches.Size() > 0 }

// Readlink returns the target of a symbolic link.
func (i *Inode) Readlink(mnt *vfs.Mount) (string, error) {
	i.Accessed(mnt)
	target, err := i.table.tree.Target(i.ino)
	return target, Errno(err)
}

// Fifo returns the pipe of a fifo.
func (i *Inode) Fifo() *pipe.VFSPipe {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	if i.pipe == nil {
		i.pipe = pipe.NewVFSPipe(true, pipe.DefaultPipeSize)
	}
	return i.pipe
}
