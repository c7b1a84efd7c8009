package reseed

import (
	"bytes"
	"sync"
	"weak"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

const (
	// codeBefore and codeAfter are how much code around the place that is returned to
	// belongs to its function, in bytes, or to one next to it in the same file. OpenSSL's
	// is less than 1 KiB long.
	codeBefore = 1 << 10
	codeAfter  = 2 << 10
	// longestName is how much is read of a name, in bytes.
	longestName = 160
	// mostCallers is how many places are remembered.
	mostCallers = 4096
)

var (
	// generatorName is the function of OpenSSL 3 that generates, generatorFile the end of
	// the name of the source file with that of OpenSSL 1.1. What reports an error refers to
	// its function by name, in OpenSSL 1.1 to its file.
	generatorName = []byte("ossl_prov_drbg_generate")
	generatorFile = []byte("crypto/rand/drbg_lib.c")
)

// memory is the memory of a process. read returns how many bytes it has read.
type memory interface {
	read(at hostarch.Addr, p []byte) int
}

// place is a place in the code of a process, and what is there: another library may be
// loaded there later.
type place struct {
	space weak.Pointer[mm.MemoryManager]
	at    hostarch.Addr
	code  [16]byte
}

// callerCache remembers which places belong to a generator.
type callerCache struct {
	mu    sync.Mutex
	known map[place]bool
}

var callers callerCache

// is reports whether the code at a place of a process, whose memory is m, belongs to
// OpenSSL's generator.
func (c *callerCache) is(space *mm.MemoryManager, m memory, at hostarch.Addr) bool {
	p := place{space: weak.Make(space), at: at}
	if at < hostarch.Addr(len(p.code)) || m.read(at-hostarch.Addr(len(p.code)/2), p.code[:]) < len(p.code)/2 {
		return false
	}
	c.mu.Lock()
	is, known := c.known[p]
	c.mu.Unlock()
	if known {
		return is
	}
	is = inGenerator(m, at)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= mostCallers { // also those of processes that ended
		c.known = map[place]bool{}
	}
	c.known[p] = is
	return is
}

// inGenerator reports whether the code around at belongs to OpenSSL's generator.
func inGenerator(m memory, at hostarch.Addr) bool {
	start := at - min(at, codeBefore)
	// By pages: code may begin or end in between.
	code, from := make([]byte, 0, codeBefore+codeAfter), start
	for from < at+codeAfter {
		end := min(at+codeAfter, from.RoundDown()+hostarch.PageSize)
		part := make([]byte, end-from)
		switch n := m.read(from, part); {
		case n == len(part):
			code = append(code, part...)
		case from+hostarch.Addr(n) <= at: // what comes before the gap is another's
			code, start = code[:0], end
		default:
			return refers(m, append(code, part[:n]...), start)
		}
		from = end
	}
	return refers(m, code, start)
}

// refers reports whether code, which is at an address, refers to one of the names.
func refers(m memory, code []byte, at hostarch.Addr) bool {
	name := make([]byte, longestName)
	for target := range references(code, at) {
		n := m.read(target, name)
		text, _, ended := bytes.Cut(name[:n], []byte{0})
		if ended && (bytes.Equal(text, generatorName) || bytes.HasSuffix(text, generatorFile)) {
			return true
		}
	}
	return false
}
