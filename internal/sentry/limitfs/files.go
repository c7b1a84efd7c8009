package limitfs

import (
	"bytes"
	"fmt"
	"slices"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// file is a file whose contents are made when it is read.
type file struct {
	kernfs.DynamicBytesFile
	name   string // in groupFiles or procFiles
	limits Limits
}

// StatFS implements kernfs.Inode.StatFS.
func (*file) StatFS(context.Context, *vfs.Filesystem) (linux.Statfs, error) { return statFS() }

// Generate implements vfs.DynamicBytesSource.Generate.
func (f *file) Generate(ctx context.Context, buf *bytes.Buffer) error {
	write, ok := groupFiles[f.name]
	if !ok {
		write = procFiles[f.name]
	}
	write(buf, &f.limits, kernel.KernelFromContext(ctx))
	return nil
}

type contents func(buf *bytes.Buffer, l *Limits, k *kernel.Kernel)

// groupFiles are the files of a control group, see cgroup-v2.rst of the Linux documentation. Programs take a file or a
// line that is absent for one that this kernel does not have, so what is not known inside of the sandbox is left out:
// what happened at a limit (memory.events, pids.events), whether the host then ends all processes (memory.oom.group), how
// long processors were withheld (cpu.stat), and what the kernel uses itself (memory.stat).
var groupFiles = map[string]contents{
	"cgroup.controllers":     text("cpuset cpu memory pids\n"),
	"cgroup.events":          text("populated 1\nfrozen 0\n"),
	"cgroup.max.depth":       text("max\n"),
	"cgroup.max.descendants": text("0\n"),
	"cgroup.procs": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		root := k.RootPIDNamespace()
		var ids []int
		for _, tg := range root.ThreadGroups() {
			if id := int(root.IDOfThreadGroup(tg)); id > initID {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for _, id := range ids {
			fmt.Fprintln(buf, id)
		}
	},
	"cgroup.stat":            text("nr_descendants 0\nnr_dying_descendants 0\n"),
	"cgroup.subtree_control": text(""),
	"cgroup.type":            text("domain\n"),

	"cpu.max": func(buf *bytes.Buffer, l *Limits, _ *kernel.Kernel) {
		fmt.Fprintf(buf, "%s %d\n", limit(l.CPU), Period)
	},
	"cpu.stat": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		used := k.CPUStats()
		fmt.Fprintf(buf, "usage_usec %d\nuser_usec %d\nsystem_usec %d\n",
			(used.UserTime + used.SysTime).Microseconds(), used.UserTime.Microseconds(), used.SysTime.Microseconds())
	},
	"cpu.weight":            text("100\n"),
	"cpuset.cpus":           text("\n"),
	"cpuset.cpus.effective": processors,
	"cpuset.mems":           text("\n"),
	"cpuset.mems.effective": text("0\n"),

	"memory.current": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		fmt.Fprintln(buf, memory(k).used)
	},
	"memory.high": text("max\n"),
	"memory.low":  text("0\n"),
	"memory.max": func(buf *bytes.Buffer, l *Limits, _ *kernel.Kernel) {
		fmt.Fprintln(buf, limit(l.Memory))
	},
	"memory.min": text("0\n"),
	"memory.peak": func(buf *bytes.Buffer, _ *Limits, _ *kernel.Kernel) {
		fmt.Fprintln(buf, PeakMemory())
	},
	"memory.stat": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		m := memory(k)
		fmt.Fprintf(buf, "anon %d\nfile %d\nshmem %d\nfile_dirty 0\nfile_writeback 0\ninactive_anon 0\nactive_anon %d\ninactive_file 0\nactive_file 0\nunevictable 0\n",
			m.used-m.shared, m.shared, m.shared, m.used)
	},
	"memory.swap.current": text("0\n"),
	"memory.swap.max":     text("0\n"),

	"pids.current": func(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
		fmt.Fprintln(buf, max(0, k.RootPIDNamespace().NumTasks()-1)) // without init, which is ours
	},
	"pids.max": func(buf *bytes.Buffer, l *Limits, _ *kernel.Kernel) {
		fmt.Fprintln(buf, limit(l.Pids))
	},
}

// PeakMemory returns the most memory that was in use. It is set once, before a kernel runs.
var PeakMemory = func() uint64 { return 0 }

// initID is the process that is ours, which programs are not told of.
const initID = 1

// text is the contents of a file that never changes.
func text(s string) contents {
	return func(buf *bytes.Buffer, _ *Limits, _ *kernel.Kernel) { buf.WriteString(s) }
}

// limit returns a limit as control groups write it.
func limit(n int64) string {
	if n == 0 {
		return "max"
	}
	return fmt.Sprint(n)
}

func processors(buf *bytes.Buffer, _ *Limits, k *kernel.Kernel) {
	if n := k.ApplicationCores(); n > 1 {
		fmt.Fprintf(buf, "0-%d\n", n-1)
		return
	}
	buf.WriteString("0\n")
}

// consumption is how much memory is used, in bytes.
type consumption struct {
	used, total uint64
	shared      uint64 // part of used: files in memory
}

// memory returns the memory that the sandbox uses, as sysinfo(2) does: the pages that only it has. A page that a child
// shares with relatives counts only against the limit of the sandbox that wrote it.
func memory(k *kernel.Kernel) consumption {
	mf := k.MemoryFile()
	used, err := mf.TotalUsage()
	if err != nil {
		log.Warningf("Read how much memory is used: %v", err)
	}
	stats, _ := usage.MemoryAccounting.Copy()
	return consumption{used: used, total: usage.TotalMemory(mf.TotalSize(), used), shared: min(stats.Tmpfs, used)}
}
