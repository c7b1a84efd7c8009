package e2b

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// machine is what a sandbox without limits may use, in MiB.
type machine struct{ memory, disk int64 }

const mib = 1 << 20

// measure asks the host for its memory, and for the size of the file system of a directory.
func measure(dir string) (machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return machine{}, fmt.Errorf("read the memory of the machine: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return machine{}, fmt.Errorf("read the size of the disk: %w", err)
	}
	return machine{memory: int64(info.Totalram * uint64(info.Unit) / mib), disk: int64(st.Blocks) * st.Bsize / mib}, nil
}

// sampleTime is how long the use of the processors is measured.
const sampleTime = 100 * time.Millisecond

// sampleLife is how long a sample is taken for the newest one, as that of the last period of a collector.
const sampleLife = 5 * time.Second

// inRange reports whether what is measured now is in the range that a query asks for, of seconds since 1970.
func inRange(q url.Values, now time.Time) (bool, error) {
	read := func(name string, otherwise int64) (int64, error) {
		text := q.Get(name)
		if text == "" {
			return otherwise, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return 0, api.Invalid(name, "%.40q is not a number of seconds since 1970", text)
		}
		return n, nil
	}
	start, err := read("start", 0)
	if err != nil {
		return false, err
	}
	end, err := read("end", now.Unix())
	if err != nil {
		return false, err
	}
	if q.Get("end") != "" && start > end {
		return false, api.Invalid("end", "it is before start")
	}
	return start <= now.Unix() && end >= now.Add(-sampleLife).Unix(), nil
}

// metrics returns what a sandbox uses now, if that is in the range that is asked for: nothing is known of the past.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	sb, err := find(r.Context(), s.svc, inner(r.PathValue("id")))
	if err != nil {
		return err
	}
	asked, err := inRange(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	if sb.State != api.StateRunning || !asked {
		return reply(w, http.StatusOK, []any{})
	}
	before, err := s.svc.Stats(r.Context(), sb.ID)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(r.Context(), sampleTime); err != nil {
		return err
	}
	now, err := s.svc.Stats(r.Context(), sb.ID)
	if err != nil {
		return err
	}
	d := s.machine.describe(sb)
	at := time.Now().UTC()
	return reply(w, http.StatusOK, []map[string]any{{
		"timestamp": at, "timestampUnix": at.Unix(), "cpuCount": d.CPUCount,
		"cpuUsedPct": 100 * (now.CPUSeconds - before.CPUSeconds) / time.Since(began).Seconds() / float64(d.CPUCount),
		"memUsed":    int64((now.Memory.PrivateMiB + now.Memory.SharedMiB) * mib), "memTotal": d.MemoryMB * mib, "memCache": 0,
		"diskUsed": int64(now.Disk.UsedMiB * mib), "diskTotal": d.DiskSizeMB * mib,
	}})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
