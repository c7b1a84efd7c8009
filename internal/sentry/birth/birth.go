package birth

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/platform"

	"ramet.dev/ramet/internal/sentry/fpstate"
)

// Half of the time that systrap takes to start goes into filters for system calls,
// which are the same in all sentries. The constructor makes the filters, then
// processes that inherit them, and nothing in its interface is between. But it says in
// the log that it has made a filter, and that is where a sentry is born: the process
// that makes them forks there, and each child goes on with the constructor, in a
// process of its own.

// filterMade begins the log line of package seccomp about a filter that it has made. The last
// filter is that of the first process.
const (
	filterMade  = "Seccomp program optimized"
	filtersMade = 3
)

// birthplace is the log's target while the platform is made. It begins with all
// processors, as the platform has as many threads for each guest process, for good, as
// there are when the constructor begins (systrap.New); what it does from the first filter
// on, and what a sentry does until it is a sandbox, takes one.
type birthplace struct {
	log.Emitter
	filters int
	born    func()
}

// Emit implements log.Emitter. The messages that are asked for only to hear of filters
// are dropped.
func (b *birthplace) Emit(depth int, level log.Level, at time.Time, format string, args ...any) {
	if strings.HasPrefix(format, filterMade) {
		if b.filters++; b.filters == 1 {
			runtime.GOMAXPROCS(1)
		}
		if b.filters == filtersMade {
			b.born()
		}
	}
	if level == log.Warning {
		b.Emitter.Emit(depth+1, level, at, format, args...)
	}
}

// UseProcessors lets the process run on as many processors as the host has. Before the
// guest does, it runs on one (see birthplace): all work is that of a single goroutine, and
// with more processors the runtime only spends time looking for work for them.
func UseProcessors() { runtime.GOMAXPROCS(runtime.NumCPU()) }

// Systrap is gVisor's name of the platform.
const Systrap = "systrap"

// NewSystrap makes the platform, and calls born before it makes a process.
func NewSystrap(born func()) (platform.Platform, error) {
	constructor, err := platform.Lookup(Systrap)
	if err != nil {
		return nil, err
	}
	b := &birthplace{Emitter: log.Log().Emitter, born: born}
	log.Log().Emitter = b
	log.SetLevel(log.Debug)
	UseProcessors()
	systrap, err := constructor.New(platform.Options{ApplicationCores: runtime.NumCPU()})
	log.SetLevel(log.Warning)
	log.Log().Emitter = b.Emitter
	if err == nil && b.filters != filtersMade {
		err = fmt.Errorf("it said %d times that it made a filter", b.filters)
	}
	if err == nil && systrap.ConcurrencyCount() != runtime.NumCPU() {
		err = fmt.Errorf("it has %d threads for a process, with %d processors", systrap.ConcurrencyCount(), runtime.NumCPU())
	}
	if err != nil {
		return nil, fmt.Errorf("create platform: %w", err)
	}
	return fpstate.NewPlatform(systrap), nil
}

// platformFile is the name of the file in memory that the platform shares with its
// processes. It is empty when a sentry is born.
const platformFile = "systrap-memory"

// PlatformFile returns the descriptor of the platform's file in memory, of those that
// proc, /proc/self, has. Every sentry needs another one there.
func PlatformFile(proc *os.Root) (fd int, err error) {
	fd = -1
	dir, err := proc.Open("fd")
	if err != nil {
		return -1, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return -1, err
	}
	for _, name := range names {
		if to, err := proc.Readlink("fd/" + name); err != nil || !strings.HasPrefix(to, "/memfd:"+platformFile+" ") {
			continue
		}
		if fd >= 0 {
			return -1, errors.New("the platform has more than one file in memory")
		}
		if _, err := fmt.Sscan(name, &fd); err != nil {
			return -1, err
		}
	}
	if fd < 0 {
		return -1, errors.New("the platform has no file in memory")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size > 0 {
		return -1, fmt.Errorf("the platform has used its file in memory: %d bytes, %w", st.Size, err)
	}
	return fd, nil
}

// NewPlatformFile returns an empty file in memory for the platform.
func NewPlatformFile() (fd int, err error) {
	if fd, err = memutil.CreateMemFD(platformFile, 0); err != nil {
		return -1, fmt.Errorf("make memory file: %w", err)
	}
	pgalloc.IMAWorkAroundForMemFile(uintptr(fd))
	return fd, nil
}

// ForgetRandom throws away the random bytes that gVisor has read ahead: they are the
// same in all forks of a process. It asks for more than the buffer of bufio.Reader has
// room for, which then is left empty.
func ForgetRandom() error {
	if _, err := rand.Read(make([]byte, 3*4096)); err != nil {
		return fmt.Errorf("read random bytes: %w", err)
	}
	return nil
}
