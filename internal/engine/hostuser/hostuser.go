package hostuser

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Ranges begin at multiples of RangeSize from first on, beyond the users of systemd's
// containers and below the negative ones (systemd.io/UIDS-GIDS).
const (
	RangeSize = 1 << 16

	first  = 0x70000000
	ranges = (1<<31 - first) / RangeSize
)

// errNone says that the user namespace of this process does not map the ranges.
var errNone = fmt.Errorf("the user namespace of the daemon has no users from %d to %d: a container has all only if it shares the host's", first, first+ranges*RangeSize-1)

// check reports whether the user namespace of this process has the users that FreeRange
// chooses from. root is where proc is found.
func check(root string) error {
	for _, name := range []string{"uid_map", "gid_map"} {
		text, err := os.ReadFile(filepath.Join(root, "proc/self", name))
		if err != nil {
			return fmt.Errorf("read users of the user namespace: %w", err)
		}
		if !mapsAll(string(text)) {
			return errNone
		}
	}
	return nil
}

// mapsAll reports whether a map of a user namespace (user_namespaces(7)) has all ranges.
func mapsAll(idMap string) bool {
	for line := range strings.Lines(idMap) {
		var from, host, count int64
		if _, err := fmt.Sscan(line, &from, &host, &count); err == nil && from <= first && from+count >= first+ranges*RangeSize {
			return true
		}
	}
	return false
}

// FreeRange returns the first of RangeSize users, and groups, that are in none of the
// files passwd, group, subuid and subgid and that no visible process has. The range is
// random: daemons that do not see each other's processes should not choose the same.
// root is where etc and proc are found.
func FreeRange(root string) (int, error) {
	if err := check(root); err != nil {
		return 0, err
	}
	var t taken
	for _, name := range []string{"passwd", "group", "subuid", "subgid"} {
		if err := t.addFile(filepath.Join(root, "etc", name)); err != nil {
			return 0, fmt.Errorf("read users: %w", err)
		}
	}
	if err := t.addProcesses(filepath.Join(root, "proc")); err != nil {
		return 0, fmt.Errorf("read users of processes: %w", err)
	}
	var free []int
	for i, is := range t.ranges {
		if !is {
			free = append(free, i)
		}
	}
	if free == nil {
		return 0, fmt.Errorf("each range of %d users from %d on has one that somebody is", RangeSize, first)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(int64(len(free))))
	if err != nil {
		return 0, fmt.Errorf("choose users: %w", err)
	}
	return first + free[n.Int64()]*RangeSize, nil
}

// taken has the ranges of which at least one user or group is in use.
type taken struct{ ranges [ranges]bool }

func (t *taken) add(from, count int64) {
	to := min(from+count, first+ranges*RangeSize)
	for from = max(from, first); from < to; from += RangeSize - from%RangeSize {
		t.ranges[(from-first)/RangeSize] = true
	}
}

// addFile adds the ids in a file of name:id:count, or of name:password:id:more.
func (t *taken) addFile(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	sub := strings.HasPrefix(filepath.Base(path), "sub")
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 3 {
			continue // a comment, or a line of NIS
		}
		id, count := fields[2], "1"
		if sub {
			id, count = fields[1], fields[2]
		}
		from, ferr := strconv.ParseInt(id, 10, 33)
		many, merr := strconv.ParseInt(count, 10, 33)
		if ferr == nil && merr == nil {
			t.add(from, many)
		}
	}
	return nil
}

// addProcesses adds the users and groups of all processes. A process that ends meanwhile is skipped.
func (t *taken) addProcesses(proc string) error {
	paths, err := filepath.Glob(filepath.Join(proc, "[0-9]*/status"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, ids, _ := strings.Cut(line, ":")
			if name != "Uid" && name != "Gid" && name != "Groups" {
				continue
			}
			for _, id := range strings.Fields(ids) {
				if n, err := strconv.ParseInt(id, 10, 64); err == nil {
					t.add(n, 1)
				}
			}
		}
	}
	return nil
}
