package limitfs

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"sync"
	gotime "time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// procFiles are the files of /proc that stand in the place of gVisor's.
var procFiles = map[string]contents{
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
	set := reflect.ValueOf(d.Inode()).Elem().FieldByName("OrderedChildren").FieldByName("set")
	creds := auth.NewRootCredentials(auth.CredentialsFromContext(ctx).UserNamespace.Root())
	for name := range procFiles {
		slot := set.MapIndex(reflect.ValueOf(name))
		if !slot.IsValid() {
			return fmt.Errorf("/proc/%s does not exist", name)
		}
		entry := (*kernfs.Inode)(unsafe.Pointer(slot.Elem().FieldByName("inode").UnsafeAddr()))
		old, ok := (*entry).(interface {
			DevMinor() uint32
			Ino() uint64
		})
		if !ok {
			return fmt.Errorf("/proc/%s is a %T", name, *entry)
		}
		f := &file{name: name}
		f.Init(ctx, creds, linux.UNNAMED_MAJOR, old.DevMinor(), old.Ino(), f, 0o444)
		*entry = f
	}
	averages.now(kernel.KernelFromContext(ctx))
	return nil
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
