package procfs

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FamilyPrivate returns the bytes of anonymous memory that only a process and its children
// have. Memory in files does not count. Where this process may not look into them, as root of a container may not without
// CAP_SYS_PTRACE, memory that they share with other processes counts too.
func FamilyPrivate(pid int) (int64, error) {
	total, err := orResident(pid, privateOf)
	if err != nil {
		return 0, err
	}
	children, err := Children(pid)
	if err != nil {
		return 0, err
	}
	for _, child := range children {
		if n, err := orResident(child, anonymousOf); err == nil { // else it has ended
			total += n
		}
	}
	return total, nil
}

// orResident returns what of says of a process, or its resident anonymous memory if that is denied.
func orResident(pid int, of func(pid int) (int64, error)) (int64, error) {
	n, err := of(pid)
	if errors.Is(err, fs.ErrPermission) {
		return lineOf(pid, "status", "RssAnon:")
	}
	return n, err
}

// privateOf adds up the private pages in proc_pid_smaps(5) of mappings that can be written
// to and have no file. Pages that a process has in common with other forks of its parent
// do not count, and neither does the text of its program.
func privateOf(pid int) (total int64, err error) {
	f, err := os.Open(filepath.Join(point, strconv.Itoa(pid), "smaps"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	counts := false
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return total, lines.Err()
		}
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"): // addresses, mode, offset, device, inode
			counts = strings.HasPrefix(fields[1], "rw") && fields[4] == "0"
		case counts && len(fields) == 3 && (fields[0] == "Private_Dirty:" || fields[0] == "Private_Clean:"):
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, err
			}
			total += kib << 10
		}
	}
}

// anonymousOf reads Pss_Anon of proc_pid_smaps_rollup(5).
func anonymousOf(pid int) (int64, error) { return lineOf(pid, "smaps_rollup", "Pss_Anon:") }

// lineOf returns the bytes in the line that begins with name of a file of a process, or 0 without such a line.
func lineOf(pid int, file, name string) (int64, error) {
	f, err := os.Open(filepath.Join(point, strconv.Itoa(pid), file))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, lines.Err()
}
