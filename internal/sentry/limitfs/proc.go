package limitfs

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	gotime "time"
	"unsafe"

	"github.com/google/uuid"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/proc"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// procFiles are the files of /proc that stand in the place of gVisor's, by their paths.
var procFiles = map[string]contents{
	// gVisor draws it when the file system is made: that would be once for all children that one template loads.
	"sys/kernel/random/boot_id": func(buf *bytes.Buffer, _ *Limits, _ *kernel.Kernel) { fmt.Fprintln(buf, bootID.Load()) },
	// Programs, OpenJDK 17 to 23 among them, look for the controllers of version 2 here.
	"cgroups": func(buf *bytes.Buffer, _ *Limits, _ *kernel.Kernel) {
		buf.WriteString("#subsys_name\thierarchy\tnum_cgroups\tenabled\n")
		for _, name := range []string{"cpuset", "cpu", "cpuacct", "memory", "pids"} {
			fmt.Fprintf(buf, "%s\t0\t1\t1\n", name)
		}
	},
	// gVisor's counts what a child inherited and has replaced, too: it would show a child that nothing is left.
	"meminfo": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		m := memory(k)
		free := m.total - min(m.used, m.total)
		for _, line := range []struct {
			name  string
			bytes uint64
		}{
			{"MemTotal", m.total}, {"MemFree", free}, {"MemAvailable", free}, {"Buffers", 0}, {"Cached", m.shared}, {"SwapCached", 0},
			{"Active", m.used}, {"Inactive", 0}, {"Active(anon)", m.used}, {"Inactive(anon)", 0}, {"Active(file)", 0}, {"Inactive(file)", 0},
			{"Unevictable", 0}, {"Mlocked", 0}, {"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", 0}, {"Writeback", 0},
			{"AnonPages", m.used - m.shared}, {"Mapped", 0}, {"Shmem", m.shared},
		} {
			fmt.Fprintf(buf, "%-15s %8d kB\n", line.name+":", line.bytes>>10)
		}
	},
	"loadavg": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		load := LoadAverages(k)
		root := k.RootPIDNamespace()
		last := kernel.ThreadID(0)
		for _, tg := range root.ThreadGroups() {
			last = max(last, root.IDOfThreadGroup(tg))
		}
		fmt.Fprintf(buf, "%.2f %.2f %.2f %d/%d %d\n", load[0], load[1], load[2], k.RunningTasks(), root.NumTasks(), last)
	},
}

// ProcType is gVisor's type of file systems for /proc with the files of this package.
type ProcType struct{ proc.FilesystemType }

// GetFilesystem implements vfs.FilesystemType.GetFilesystem.
func (t *ProcType) GetFilesystem(ctx context.Context, v *vfs.VirtualFilesystem, creds *auth.Credentials, source string, opts vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	fs, root, err := t.FilesystemType.GetFilesystem(ctx, v, creds, source, opts)
	if err != nil {
		return nil, nil, err
	}
	if err := ReplaceProc(ctx, fs, root); err != nil {
		root.DecRef(ctx)
		fs.DecRef(ctx)
		return nil, nil, err
	}
	return fs, root, nil
}

// ReplaceProc puts the files of this package in the place of gVisor's in fs, a proc file system whose root directory is
// root, before anybody has looked at it, unless they are there. gVisor offers no way to do that, so the directory's
// entries are reached by reflection.
func ReplaceProc(ctx context.Context, fs *vfs.Filesystem, root *vfs.Dentry) error {
	d, ok := root.Impl().(*kernfs.Dentry)
	if !ok {
		return fmt.Errorf("/proc is a %T", root.Impl())
	}
	creds := auth.NewRootCredentials(auth.CredentialsFromContext(ctx).UserNamespace.Root())
	for path := range procFiles {
		entry, err := entryOf(d.Inode(), path)
		if err != nil {
			return err
		}
		if _, ok := (*entry).(*file); ok {
			return nil
		}
		f := &file{name: path}
		if err := f.replace(ctx, creds, entry, path); err != nil {
			return err
		}
	}
	inos, ok := fs.Impl().(interface{ NextIno() uint64 })
	if !ok {
		return fmt.Errorf("the file system of /proc is a %T", fs.Impl())
	}
	for path := range settingFiles {
		if err := addSetting(ctx, creds, d.Inode(), inos.NextIno, path); err != nil {
			return err
		}
	}
	averages.now(kernel.KernelFromContext(ctx))
	return nil
}

// numbered is an inode, by its numbers.
type numbered interface {
	DevMinor() uint32
	Ino() uint64
}

func (f *file) replace(ctx context.Context, creds *auth.Credentials, entry *kernfs.Inode, path string) error {
	old, ok := (*entry).(numbered)
	if !ok {
		return fmt.Errorf("/proc/%s is a %T", path, *entry)
	}
	f.Init(ctx, creds, linux.UNNAMED_MAJOR, old.DevMinor(), old.Ino(), f, 0o444)
	*entry = f
	return nil
}

// addSetting makes a file of Settings below /proc/sys, with its directory unless it is there, or puts it in the place of
// gVisor's.
func addSetting(ctx context.Context, creds *auth.Credentials, proc kernfs.Inode, nextIno func() uint64, path string) error {
	at := "sys"
	for name := range strings.SplitSeq(path, "/") {
		parent, err := entryOf(proc, at)
		if err != nil {
			return err
		}
		dir, ok := (*parent).(*kernfs.StaticDirectory)
		if !ok {
			return fmt.Errorf("/proc/%s is a %T", at, *parent)
		}
		at += "/" + name
		if at != "sys/"+path {
			if !hasEntry(dir, name) {
				opts := kernfs.GenericDirectoryFDOptions{SeekEnd: kernfs.SeekEndZero}
				below := kernfs.NewStaticDir(ctx, creds, linux.UNNAMED_MAJOR, dir.DevMinor(), nextIno(), 0o555, nil, opts)
				dir.IncLinks(dir.Populate(map[string]kernfs.Inode{name: below}))
			}
			continue
		}
		f := &setting{name: path}
		f.Init(ctx, creds, linux.UNNAMED_MAJOR, dir.DevMinor(), nextIno(), f, 0o644)
		if !hasEntry(dir, name) {
			dir.Populate(map[string]kernfs.Inode{name: f})
			continue
		}
		entry, err := entryOf(proc, at)
		if err != nil {
			return err
		}
		*entry = f
	}
	return nil
}

func hasEntry(dir *kernfs.StaticDirectory, name string) (has bool) {
	dir.ForEachChild(func(child string, _ kernfs.Inode) { has = has || child == name })
	return has
}

// entryOf returns where the directory dir, or one below it, has the inode of path.
func entryOf(dir kernfs.Inode, path string) (*kernfs.Inode, error) {
	entry := &dir
	for name := range strings.SplitSeq(path, "/") {
		children := reflect.ValueOf(*entry).Elem().FieldByName("OrderedChildren")
		if !children.IsValid() {
			return nil, fmt.Errorf("/proc/%s: what is above %s is a %T", path, name, *entry)
		}
		slot := children.FieldByName("set").MapIndex(reflect.ValueOf(name))
		if !slot.IsValid() {
			return nil, fmt.Errorf("/proc/%s does not exist", path)
		}
		entry = (*kernfs.Inode)(unsafe.Pointer(slot.Elem().FieldByName("inode").UnsafeAddr()))
	}
	return entry, nil
}

// bootID is the id of the kernel. A process has a single kernel.
var bootID atomic.Pointer[uuid.UUID]

// SetBootID has the kernel show an id that belongs to a name: the same one for the same name. It must be called before
// a program runs.
func SetBootID(name string) {
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(name))
	bootID.Store(&id)
}

// LoadAverages returns the load averages of the last one, five and fifteen minutes.
func LoadAverages(k *kernel.Kernel) [3]float64 { return averages.now(k) }

// averages are the load averages of the kernel. A process has a single kernel.
var averages loadAverages

// loadAverages are the averages of how many processors were busy in the last one, five and fifteen minutes. They are
// computed when they are read: between two reads, the load counts as constant.
type loadAverages struct {
	mu   sync.Mutex
	at   gotime.Time // zero before the first time
	used gotime.Duration
	load [3]float64
}

var loadPeriods = [...]gotime.Duration{gotime.Minute, 5 * gotime.Minute, 15 * gotime.Minute}

func (a *loadAverages) now(k *kernel.Kernel) [3]float64 {
	stats := k.CPUStats()
	return a.add(gotime.Now(), stats.UserTime+stats.SysTime)
}

// add counts the processor time that was used up to now, and returns the averages.
func (a *loadAverages) add(now gotime.Time, used gotime.Duration) [3]float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if passed := now.Sub(a.at); !a.at.IsZero() && passed > 0 {
		busy := float64(used-a.used) / float64(passed)
		for i, period := range loadPeriods {
			stays := math.Exp(-float64(passed) / float64(period))
			a.load[i] = a.load[i]*stays + busy*(1-stays)
		}
	}
	a.at, a.used = now, used
	return a.load
}
