package process

import (
	"testing"
)

// TestBriefPrograms checks that no system call is rewritten of a program that makes few,
// and that they are of one that makes many.
func TestBriefPrograms(t *testing.T) {
	x := newContextTestOf(t, "/usr/bin/python3", "/bin/cat")
	x.value("box", `
import subprocess
def rewritten(lines):
    p = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    for i in range(lines):
        p.stdin.write(b"x")
        assert p.stdout.read(1) == b"x"
    maps = open(f"/proc/{p.pid}/maps").read()
    p.communicate()
    return "[usertrap]" in maps
`)
	for code, want := range map[string]string{"rewritten(1)": "False", "rewritten(200)": "True"} {
		if got := x.value("box", code); got != want {
			t.Errorf("%s: %s", code, got)
		}
	}
}

// TestRewritingUnderThreads has threads that make the same call from the same place while
// it is rewritten, which takes several stores: one that has made the first instruction finds
// half of it. What is no instruction at all ends a program as ever.
func TestRewritingUnderThreads(t *testing.T) {
	x := newContextTest(t)
	x.value("box", `
import os, struct, subprocess
def program(code):
    header = struct.pack("<4s5B7x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 0, 2, 62, 1, 0x4000b0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    code_at = struct.pack("<2I6Q", 1, 5, 0, 0x400000, 0, 0xb0 + len(code), 0xb0 + len(code), 0x1000)
    data_at = struct.pack("<2I6Q", 1, 6, 0, 0x500000, 0, 0, 0x6000, 0x1000)
    with open("/tmp/program", "wb") as f: f.write(header + code_at + data_at + code)
    os.chmod("/tmp/program", 0o755)
def ends(n):
    return {subprocess.run(["/tmp/program"]).returncode for _ in range(n)}
`)
	// Four times clone(2), then all five make getpid(2) 300 times, count themselves at
	// 0x500000 and exit; the last one ends the process.
	const threads = "41bc04000000bf000f05004c89e648c1e60c4881c600005000b8380000000f0585c0740541ffcc75dd" +
		"41bd2c010000b8270000000f0541ffcd75f4b801000000f00fc104250000500083f804750931ffb8e70000000f05b83c0000000f05"
	// getuid(2) 300 times, then fork(2). The parent waits for the child, which goes on with the code that
	// follows, and ends with its status.
	const forked = "41bd2c010000b8660000000f0541ffcd75f4b8390000000f0585c0742b48c7c7ffffffff4883ec104889e631d24531d2b83d0000000f05" +
		"8b3c2489f8c1ef0809c7b8e70000000f05"
	for _, c := range []struct{ what, code, runs, want string }{
		{"threads", threads, "100", "{0}"},
		{"threads of a child", forked + threads, "100", "{0}"},
		{"ud2 in a child", forked + "0f0b", "1", "{4}"},
		{"the byte in a child", forked + "06", "1", "{4}"},
		{"ud2", "0f0b", "1", "{-4}"},
		{"the byte that half of a rewritten call has", "06", "1", "{-4}"},
	} {
		if got := x.value("box", "program(bytes.fromhex('"+c.code+"')); ends("+c.runs+")"); got != c.want {
			t.Errorf("%s: ends with %s, want %s", c.what, got, c.want)
		}
	}
}

// TestForksInside checks that parents and children have each their own memory after many forks, also
// if they touch other memory each time, or have threads that write meanwhile.
func TestForksInside(t *testing.T) {
	x := newContextTest(t)
	x.value("box", `
import mmap, os, random, threading
PAGES = 200
area = mmap.mmap(-1, PAGES * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, 4096)
choice = random.Random(1)
def forks(n, depth=1):
    "the number of forks after which a side has memory that it should not have"
    wrong = 0
    for i in range(n):
        pages = choice.sample(range(PAGES), choice.randrange(30))
        before = [area[p * 4096] for p in range(PAGES)]
        pid = os.fork()
        if pid == 0:
            bad = [area[p * 4096] for p in range(PAGES)] != before
            for p in pages: area[p * 4096] = (area[p * 4096] + 7) % 256
            bad = bad or any(area[p * 4096] != (before[p] + 7 * (p in pages)) % 256 for p in range(PAGES))
            shared[i % 4096] = (shared[i % 4096] + 1) % 256
            if depth > 1 and i % 5 == 0: bad = bad or forks(3, depth - 1) > 0
            os._exit(1 if bad else 0)
        for p in pages[::2]: area[p * 4096] = (area[p * 4096] + 1) % 256
        wrong += os.waitpid(pid, 0)[1] != 0
        wrong += [area[p * 4096] for p in range(PAGES)] != [(before[p] + (p in pages[::2])) % 256 for p in range(PAGES)]
    return wrong
def beside(n):
    "the same while threads write to memory that is theirs"
    done, wrong = threading.Event(), []
    def write(at):
        mine, v = bytearray(64 << 10), 0
        while not done.is_set():
            v = (v + 1) % 256
            mine[::4096] = bytes([v]) * 16
            if any(b != v for b in mine[::4096]): wrong.append(at)
    others = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for o in others: o.start()
    n = forks(n)
    done.set()
    for o in others: o.join()
    return n + len(wrong)
`)
	for _, code := range []string{"forks(150)", "forks(20, 3)", "beside(60)", "forks(10)"} {
		if got := x.value("box", code); got != "0" {
			t.Errorf("%s: %s", code, got)
		}
	}
	if got := x.value("box", "shared[0] > 0"); got != "True" {
		t.Errorf("what children write to shared memory is seen: %s", got)
	}
}

// TestMappedAhead checks what of a program and a library is mapped before it is touched,
// that no more is, and that all of it is what it would be otherwise.
func TestMappedAhead(t *testing.T) {
	x := newContextTest(t)
	x.value("box", `
import ctypes, mmap, os, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
READ, WRITE, EXEC, PRIVATE, FIXED, ANON, NONE = 1, 2, 4, 2, 16, 32, 0
KiB = 1 << 10
content = bytes(i // 4096 + 1 for i in range(256 * KiB))
open("/tmp/library", "wb").write(content)
fd = os.open("/tmp/library", os.O_RDONLY)
place = libc.mmap(None, 1 << 20, NONE, PRIVATE | ANON, -1, 0)

def resident(at):
    "how many KiB are mapped of the mapping at that address, before it is touched"
    found = False
    for line in open("/proc/self/smaps"):
        if line.startswith("%08x-" % at): found = True
        elif found and line.startswith("Rss:"): return int(line.split()[1])

def segment(length, prot, flags=PRIVATE | FIXED, fd=fd, offset=4096):
    libc.mmap(place, 1 << 20, NONE, PRIVATE | ANON | FIXED, -1, 0)
    assert libc.mmap(place, length, prot, flags, fd, offset) == place, ctypes.get_errno()
    return resident(place)

def library():
    "how much of its head is mapped before and after its code, and of that"
    head = segment(4096, READ, offset=0)
    libc.mmap(place + 4096, 64 * KiB, READ | EXEC, PRIVATE | FIXED, fd, 4096)
    return head, resident(place), resident(place + 4096)

def anywhere(length, prot):
    return resident(libc.mmap(None, length, prot, PRIVATE, fd, 0))

def ends(do):
    "the signal that ends a process that does it"
    pid = os.fork()
    if pid == 0:
        do()
        os._exit(0)
    return signal.Signals(os.WTERMSIG(os.waitpid(pid, 0)[1])).name
`)
	for _, c := range []struct{ what, code, want string }{
		{"code", "segment(64 * KiB, READ | EXEC)", "64"},
		{"what it says", "ctypes.string_at(place, 64 * KiB) == content[4096:][:64 * KiB]", "True"},
		{"data", "segment(16 * KiB, READ | WRITE)", "16"},
		{"what it says", "ctypes.string_at(place, 16 * KiB) == content[4096:][:16 * KiB]", "True"},
		{"written to", "ctypes.memset(place, 7, 4096); (ctypes.string_at(place + 4095, 2), open('/tmp/library', 'rb').read() == content)", `(b'\x07\x03', True)`},
		{"made read-only", "libc.mprotect(place, 8 * KiB, READ), resident(place)", "(0, 8)"},
		{"then written to", "ends(lambda: ctypes.memset(place, 1, 1))", "'SIGSEGV'"},
		{"what it says", "ctypes.string_at(place + 4095, 2)", `b'\x07\x03'`},
		{"made nothing", "libc.mprotect(place, 0, READ), libc.mprotect((1 << 64) - 4096, 4096, READ), resident(place)", "(0, -1, 8)"},
		{"a library's head and code", "library()", "(0, 4, 64)"},
		{"a small file", "anywhere(16 * KiB, READ)", "16"},
		{"a large one", "anywhere(128 * KiB, READ)", "0"},
		{"one to be written to", "anywhere(16 * KiB, READ | WRITE)", "0"},
		{"much data", "segment(128 * KiB, READ | WRITE)", "0"},
		{"constants", "segment(64 * KiB, READ)", "0"},
		{"a reservation", "segment(64 * KiB, NONE)", "0"},
		{"behind the file's end", "segment(8 * KiB, READ | EXEC, offset=512 * KiB)", "0"},
		{"then touched", "ends(lambda: ctypes.string_at(place, 1))", "'SIGBUS'"},
	} {
		if got := x.value("box", c.code); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.what, c.code, got, c.want)
		}
	}
}

// TestExecutedAhead checks what is mapped of a program that is linked dynamically when it
// has executed one instruction.
func TestExecutedAhead(t *testing.T) {
	x := newContextTestOf(t, "/usr/bin/python3", "/bin/cat")
	got := x.value("box", `
import ctypes, os
libc = ctypes.CDLL(None)
pid = os.fork()
if pid == 0:
    libc.ptrace(0, 0, None, None) # PTRACE_TRACEME
    os.execv("/bin/cat", ["cat"])
def mapped(program):
    "which of the first mappings of a file are mapped, if only in part"
    marks = []
    for line in open(f"/proc/{pid}/smaps"):
        words = line.split()
        if "-" in words[0]: ours = program in words[-1]
        elif words[0] == "Rss:" and ours: marks.append(words[1] != "0")
    return all(marks[:4])
os.waitpid(pid, 0)
before = mapped("cat"), mapped("ld-linux")
libc.ptrace(9, pid, None, None) # PTRACE_SINGLESTEP
os.waitpid(pid, 0)
after = mapped("cat"), mapped("ld-linux")
libc.ptrace(8, pid, None, None) # PTRACE_KILL
os.waitpid(pid, 0)
before, after
`)
	if got != "((False, False), (True, True))" {
		t.Errorf("program and linker, before and after: %s", got)
	}
}
