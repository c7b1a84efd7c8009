package limitfs

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	gotime "time"
	"unsafe"

	"github.com/google/uuid"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// procFiles are the files of /proc that stand in the place of gVisor's, by their paths.
var procFiles = map[string]contents{
	// gVisor draws it when the file system is made: that would be once for all children that one template loads.
	"sys/kernel/random/boot_id": func(buf *bytes.Buffer, _ *Limits, _ *kernel.Kernel) { fmt.Fprintln(buf, bootID()) },
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

// ReplaceProc puts the files of this package in the place of gVisor's in a proc file system, whose root directory is
// root, before anybody has looked at it. gVisor offers no way to do that, so the directory's entries are reached by reflection.
func ReplaceProc(ctx context.Context, root *vfs.Dentry) error {
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
		old, ok := (*entry).(interface {
			DevMinor() uint32
			Ino() uint64
		})
		if !ok {
			return fmt.Errorf("/proc/%s is a %T", path, *entry)
		}
		f := &file{name: path}
		f.Init(ctx, creds, linux.UNNAMED_MAJOR, old.DevMinor(), old.Ino(), f, 0o444)
		*entry = f
	}
	averages.now(kernel.KernelFromContext(ctx))
	return nil
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

// bootID returns the id of the kernel, which is drawn when it is asked for first. A process has a single kernel.
var bootID = sync.OnceValue(func() string { return uuid.Must(uuid.NewRandomFromReader(rand.Reader)).String() })

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
