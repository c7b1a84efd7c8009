package sandboxes

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
)

func statsRow(st *api.Stats) []string {
	disk := diskUsed(&st.Disk, " / ")
	if st.State == api.StateHibernated || st.State == api.StateCreating { // there is no process on the host
		return []string{string(st.State), "", "", disk, "", ""}
	}
	return []string{string(st.State), console.MiB(st.Memory.PrivateMiB), console.MiB(st.Memory.SharedMiB), disk, fmt.Sprintf("%.2f s", st.CPUSeconds), strconv.Itoa(st.Processes)}
}

func sandboxPairs(s *api.Sandbox) func(io.Writer) error {
	i := s.Isolation
	layers := map[string]api.Layer{
		"sentry": i.Sentry, "systrap": i.Systrap, "seccomp": i.Seccomp, "no_new_privs": i.NoNewPrivs, "capabilities_dropped": i.Caps,
		"user_namespace": i.UserNS, "own_user": i.OwnUser, "namespaces": i.Namespaces, "empty_root": i.EmptyRoot, "landlock": i.Landlock, "rlimits": i.Rlimits, "cgroup": i.Cgroup,
	}
	var on, off []string
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		if layers[name] == api.LayerOn {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	if len(on) == 0 {
		off = nil // there is no process that could have layers
	}
	image := s.Image
	if s.ImageName != "" {
		image += " (" + s.ImageName + ")"
	}
	return console.Pairs(
		"id", s.ID, "tenant", s.Tenant, "name", s.Name, "state", string(s.State), "reason", s.Reason, "image", image, "parent", s.Parent, "snapshot", s.Snapshot,
		"depth", strconv.Itoa(s.Depth), "created", s.CreatedAt.Format(time.RFC3339),
		"limits", limitsOf(s.Limits, s.Isolation.MemoryLimit),
		"memory", memoryOf(s), "disk", diskOf(s),
		"env", describe.JoinPairs(s.Env), "metadata", describe.JoinPairs(s.Metadata), "network", describe.Held(describe.Network(s.Network), s.Hold), "trusts", trusted(s), "volumes", volumesOf(s), "lifecycle", describe.Lifecycle(s.Lifecycle), "auto-checkpoint", autoCheckpoint(s.AutoCheckpoint), "self-control", selfControl(s.SelfControl), "failed", describe.FailedHooks(&s.Identity), "isolation", strings.Join(on, " "), "missing", strings.Join(off, " "),
	)
}

// limitsOf returns the limits that are set, or an empty text.
func limitsOf(l api.Limits, memory string) string {
	var out []string
	add := func(limited bool, format string, value any) {
		if limited {
			out = append(out, fmt.Sprintf(format, value))
		}
	}
	add(l.CPUs > 0, "%g cpus", l.CPUs)
	if memory == api.MemoryWatched {
		add(l.MemoryMiB > 0, "%d MiB memory (watched)", l.MemoryMiB)
	} else {
		add(l.MemoryMiB > 0, "%d MiB memory", l.MemoryMiB)
	}
	add(l.DiskMiB > 0, "%d MiB disk", l.DiskMiB)
	add(l.Pids > 0, "%d pids", l.Pids)
	add(l.OpenFiles > 0, "%d open files", l.OpenFiles)
	return strings.Join(out, ", ")
}

func selfControl(c *api.SelfControl) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%d forks and %d snapshots of the whole tree, %d generations", c.Forks, c.Snapshots, c.Depth)
}

func snapshotPairs(s *api.Snapshot) func(io.Writer) error {
	return console.Pairs(
		"id", s.ID, "tenant", s.Tenant, "name", s.Name, "label", s.Label, "state", string(s.State), "reason", s.Reason, "sandbox", s.Sandbox, "parent", s.Parent, "image", s.Image,
		"depth", strconv.Itoa(s.Depth), "created", s.CreatedAt.Format(time.RFC3339), "on disk", strconv.FormatBool(s.OnDisk),
		"size", console.ByteSize(s.SizeBytes), "depends on", strings.Join(s.DependsOn, " "), "expires", describe.Expiry(s.ExpiresAt), "pause", console.Millis(s.PauseMS), "engine", s.Engine, "metadata", describe.JoinPairs(s.Metadata),
	)
}

// memoryOf describes the memory of a sandbox, if it was measured.
func memoryOf(s *api.Sandbox) string {
	if s.Memory == nil {
		return ""
	}
	return console.MiB(s.Memory.PrivateMiB) + " private, " + console.MiB(s.Memory.SharedMiB) + " shared"
}

// diskOf describes the files of a sandbox, if they were measured.
func diskOf(s *api.Sandbox) string {
	if s.Disk == nil {
		return ""
	}
	return diskUsed(s.Disk, " of ") + " used, " + console.MiB(s.Disk.PrivateMiB) + " private"
}

// diskUsed returns the used size and the limit, if there is one.
func diskUsed(d *api.Disk, of string) string {
	if d.LimitMiB == 0 {
		return console.MiB(d.UsedMiB)
	}
	return console.MiB(d.UsedMiB) + of + console.MiB(float64(d.LimitMiB))
}

// volumesOf says which volumes a sandbox has, and where.
func volumesOf(s *api.Sandbox) string {
	var all []string
	for _, m := range s.Volumes {
		text := m.Name + " at " + m.Path
		if m.ReadOnly {
			text += " (read-only)"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// trusted says which authorities a sandbox trusts besides those of its image.
func trusted(s *api.Sandbox) string {
	switch {
	case s.TrustedCAs == 1:
		return "1 certificate authority of the host"
	case s.TrustedCAs > 1:
		return fmt.Sprintf("%d certificate authorities of the host", s.TrustedCAs)
	case s.TrustHostCA != nil && !*s.TrustHostCA:
		return "no certificate authority of the host"
	}
	return ""
}

// autoCheckpoint describes the steps that are kept.
func autoCheckpoint(c *api.AutoCheckpoint) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("the last %d steps", c.Keep)
}
