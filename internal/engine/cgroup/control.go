package cgroup

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// setting is one control file to write. The order of settings matters.
type setting struct {
	controller controller
	file       string
	value      string
	// optional files are missing on kernels without swap accounting, and on kernels
	// that are older than the file.
	optional bool
	// inherit is written instead if the kernel refuses value as invalid.
	inherit string
}

// SetLimits replaces all limits of the group. Memory can be lowered only to what
// the kernel can reclaim down to: v1 refuses with api.CodeLimit, v2 kills.
func (g *Group) SetLimits(l Limits) error {
	if err := l.validate(); err != nil {
		return err
	}
	settings := settingsV1(l)
	if g.h.kind == KindV2 {
		settings = settingsV2(l)
	}
	for _, s := range settings {
		err := writeFile(g.dir(s.controller), s.file, s.value)
		if s.inherit != "" && errors.Is(err, unix.EINVAL) {
			err = writeFile(g.dir(s.controller), s.file, s.inherit)
		}
		switch {
		case err == nil:
		case s.optional && (errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP)):
		case s.controller == memory && errors.Is(err, unix.EBUSY):
			return api.Errorf(api.CodeLimit, "memory limit of %d bytes is below what is in use: %w", l.MemoryBytes, err)
		default:
			return fmt.Errorf("limit control group: %w", err)
		}
	}
	return nil
}

func settingsV1(l Limits) []setting {
	const unlimited = "-1"
	mem := orUnlimited(l.MemoryBytes, unlimited)
	return []setting{
		// memsw is memory and swap together and must never be below memory, so it
		// is lifted first. Both are the same in the end: no swapping out.
		{controller: memory, file: "memory.memsw.limit_in_bytes", value: unlimited, optional: true},
		{controller: memory, file: "memory.limit_in_bytes", value: mem},
		{controller: memory, file: "memory.memsw.limit_in_bytes", value: mem, optional: true},
		// v1 refuses a quota above that of a group further up, whose quota is then the
		// stricter limit and applies without this one.
		{controller: cpu, file: "cpu.cfs_quota_us", value: orUnlimited(l.cpuQuotaMicros(), unlimited), inherit: unlimited},
		{controller: pids, file: "pids.max", value: orUnlimited(l.Pids, "max")},
	}
}

func settingsV2(l Limits) []setting {
	const unlimited = "max"
	swap, together := unlimited, "0"
	if l.MemoryBytes > 0 {
		// A sentry without one of its stubs is of no use, nor is a stub without its
		// sentry: the kernel kills the whole group at its memory limit.
		swap, together = "0", "1"
	}
	return []setting{
		{controller: memory, file: "memory.oom.group", value: together, optional: true},
		{controller: memory, file: "memory.swap.max", value: swap, optional: true},
		{controller: memory, file: "memory.max", value: orUnlimited(l.MemoryBytes, unlimited)},
		{controller: cpu, file: "cpu.max", value: fmt.Sprintf("%s %d", orUnlimited(l.cpuQuotaMicros(), unlimited), cpuPeriodMicros)},
		{controller: pids, file: "pids.max", value: orUnlimited(l.Pids, unlimited)},
	}
}

func (g *Group) statsV1() (Stats, error) {
	mem, err1 := g.readInt(memory, "memory.usage_in_bytes")
	nanos, err2 := g.readInt(cpuacct, "cpuacct.usage")
	tasks, err3 := g.readInt(pids, "pids.current")
	kills, err4 := g.readKey(memory, "memory.oom_control", "oom_kill")
	return Stats{MemoryBytes: mem, CPU: time.Duration(nanos), Pids: tasks, OOMKills: kills}, errors.Join(err1, err2, err3, err4)
}

func (g *Group) statsV2() (Stats, error) {
	mem, err1 := g.readInt(memory, "memory.current")
	micros, err2 := g.readKey(cpu, "cpu.stat", "usage_usec")
	tasks, err3 := g.readInt(pids, "pids.current")
	kills, err4 := g.readKey(memory, "memory.events", "oom_kill")
	return Stats{MemoryBytes: mem, CPU: time.Duration(micros) * time.Microsecond, Pids: tasks, OOMKills: kills}, errors.Join(err1, err2, err3, err4)
}
