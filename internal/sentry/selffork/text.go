package selffork

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KeepText replaces the mappings of the program's file that nobody writes to by
// copies in memory. A fork inherits the page tables of these; those of a file it would
// have to fill again, fault by fault, which is most of what a short-lived child of a
// large program does.
func KeepText() error {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if !strings.HasSuffix(lines.Text(), " "+exe) {
			continue
		}
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil {
			return err
		}
		if mode[1] == 'w' {
			continue
		}
		prot := unix.PROT_READ
		if mode[2] == 'x' {
			prot |= unix.PROT_EXEC
		}
		if err := keep(from, to-from, prot); err != nil {
			return fmt.Errorf("keep text: %w", err)
		}
	}
	return nil
}

const huge = 2 << 20

func keep(at, size uintptr, prot int) error {
	// At the same distance from a boundary of huge pages, so that such can be moved.
	room := size + huge
	copied, err := unix.MmapPtr(-1, 0, nil, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	start := (at - uintptr(copied)) % huge
	mem := unsafe.Slice((*byte)(unsafe.Add(copied, start)), size)
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	copy(mem, unsafe.Slice((*byte)(addr(at)), size))
	if err := unix.Mprotect(mem, prot); err != nil {
		return err
	}
	_, err = unix.MremapPtr(unsafe.Pointer(&mem[0]), size, addr(at), size, unix.MREMAP_FIXED|unix.MREMAP_MAYMOVE)
	if start > 0 {
		unix.MunmapPtr(copied, start)
	}
	unix.MunmapPtr(unsafe.Add(copied, start+size), huge-start)
	return err
}

// addr is a pointer to what is no Go object.
func addr(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
