package inode

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Stat answers statx(2).
func (i *Inode) Stat() linux.Statx {
	a := i.told()
	blocks := a.Blocks + (a.ImageEnd+pages.PageSize-1)/pages.PageSize
	if whole := (a.Size + pages.PageSize - 1) / pages.PageSize; a.ImageEnd > 0 {
		blocks = min(blocks, whole) // blocks of the image that were replaced count once
	}
	size := a.Size
	if i.IsDir() {
		size = pages.PageSize
	}
	return linux.Statx{
		Mask:    linux.STATX_BASIC_STATS | linux.STATX_BTIME,
		Blksize: pages.PageSize, Nlink: a.Nlink, UID: a.UID, GID: a.GID, Mode: uint16(a.Mode), Ino: uint64(i.ino),
		Size: size, Blocks: blocks * (pages.PageSize / 512),
		Atime: timestamp(a.Atime), Btime: timestamp(a.Btime), Ctime: timestamp(a.Ctime), Mtime: timestamp(a.Mtime),
		RdevMajor: a.Major, RdevMinor: a.Minor, DevMajor: linux.UNNAMED_MAJOR, DevMinor: i.table.devMinor,
	}
}

// timestamp converts nanoseconds, also those before 1970.
func timestamp(ns int64) linux.StatxTimestamp {
	t := linux.StatxTimestamp{Sec: ns / 1e9}
	rest := ns % 1e9
	if rest < 0 {
		t.Sec--
		rest += 1e9
	}
	t.Nsec = uint32(rest)
	return t
}

// settable are the attributes that SetStat can change.
const settable = linux.STATX_MODE | linux.STATX_UID | linux.STATX_GID | linux.STATX_ATIME | linux.STATX_MTIME | linux.STATX_CTIME | linux.STATX_SIZE

// SetStat does the work of chmod(2), chown(2), utimensat(2) and truncate(2).
func (i *Inode) SetStat(ctx context.Context, creds *auth.Credentials, opts *vfs.SetStatOptions) error {
	s := &opts.Stat
	if s.Mask == 0 && !opts.ClearPrivs { // chown(2) with no new owner still removes set-id bits
		return nil
	}
	if s.Mask&^uint32(settable) != 0 {
		return linuxerr.EPERM
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.Attr()
	if s.Mask&linux.STATX_SIZE != 0 {
		switch a.Mode & linux.S_IFMT {
		case linux.S_IFREG:
		case linux.S_IFDIR:
			return linuxerr.EISDIR
		default:
			return linuxerr.EINVAL
		}
	}
	if err := vfs.CheckSetStat(ctx, creds, opts, linux.FileMode(a.Mode), nil, auth.KUID(a.UID), auth.KGID(a.GID)); err != nil {
		return err
	}
	const both = linux.STATX_ATIME | linux.STATX_MTIME
	if s.Mask&both != 0 && s.Mask&both != both && !vfs.CanActAsOwner(creds, auth.KUID(a.UID)) {
		return linuxerr.EPERM // only both together may be set to now, see utimensat(2)
	}
	if s.Mask&linux.STATX_SIZE != 0 {
		if err := i.truncate(s.Size); err != nil {
			return err
		}
	}
	clear := opts.ClearPrivs
	if clear {
		i.dropCaps()
		// Truncation keeps set-id bits if the caller may set them. A new owner keeps none but
		// the mark for locks, see clearIDs.
		clear = s.Mask&linux.STATX_SIZE == 0 || !creds.HasRootCapability(linux.CAP_FSETID)
	}
	now := i.table.Now()
	i.Set(func(a *cowfs.Attr) { applyStat(a, s, clear, creds, now) })
	return nil
}

// applyStat changes a as s says. If clear is set, it removes set-id bits first.
func applyStat(a *cowfs.Attr, s *linux.Statx, clear bool, creds *auth.Credentials, now int64) {
	if clear && !a.IsDir() { // before it has another group
		clearIDs(a, creds)
	}
	if s.Mask&linux.STATX_UID != 0 {
		a.UID = s.UID
	}
	if s.Mask&linux.STATX_GID != 0 {
		a.GID = s.GID
	}
	if s.Mask&linux.STATX_MODE != 0 {
		a.Mode = a.Mode&linux.S_IFMT | uint32(s.Mode)&^linux.S_IFMT
	}
	a.Ctime = now
	if s.Mask&linux.STATX_SIZE != 0 {
		a.Mtime = now
	}
	timeOf := func(t linux.StatxTimestamp) int64 {
		if t.Nsec == linux.UTIME_NOW {
			return now
		}
		return t.ToNsecCapped()
	}
	if s.Mask&linux.STATX_ATIME != 0 {
		a.Atime = timeOf(s.Atime)
	}
	if s.Mask&linux.STATX_MTIME != 0 {
		a.Mtime = timeOf(s.Mtime)
	}
	if s.Mask&linux.STATX_CTIME != 0 {
		a.Ctime = timeOf(s.Ctime)
	}
}
