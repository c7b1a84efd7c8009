package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

// fileOps are the operations on files. Each is measured in the sandbox's root file system and, in
// the same run, in gVisor's overlay on its tmpfs, which is at /dev/shm. Their rows are named
// files-OP.
var fileOps = []struct {
	name string
	most float64 // the largest ratio to the time on the overlay
}{{"untar", 1.2}, {"find", 1.2}, {"stat", 1.2}, {"read4k", 1.2}, {"write4k", 1.2}, {"import", 1.1}}

// filesProgram prints, as JSON, the milliseconds of each operation: [root file system, overlay].
// The tree has 25 000 files of 20 KiB, some 500 MiB. The file systems take turns, and the median
// counts: their share of a read or a write of 4 KiB is less than the switch into gVisor and back,
// which takes 1.5 µs or 9, depending on whether gVisor's own switch currently waits awake or
// asleep. import is a new Python that imports numpy.
const filesProgram = `import ctypes, json, os, random, shutil, statistics, subprocess, time
def clock(fn):
    began = time.monotonic()
    fn()
    return (time.monotonic() - began) * 1000
def run(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
def stat(top):
    for d, _, names in os.walk(top):
        for n in names:
            os.lstat(os.path.join(d, n))
def blocks(path, write):
    fd = os.open(path, os.O_RDWR)
    order = random.Random(1)
    block = b"x" * 4096
    for _ in range(20000):
        at = order.randrange(25000) * 4096
        os.pwrite(fd, block, at) if write else os.pread(fd, 4096, at)
    os.close(fd)
os.makedirs("/root/tree")
block = os.urandom(20 << 10)
for d in range(250):
    os.mkdir("/root/tree/%d" % d)
    for f in range(100):
        with open("/root/tree/%d/%d" % (d, f), "wb") as h:
            h.write(block)
run("tar", "-cf", "/root/tree.tar", "-C", "/root", "tree")
shutil.rmtree("/root/tree")
libc = ctypes.CDLL(None, use_errno=True)
for d in ("upper", "work", "overlay"):
    os.makedirs("/dev/shm/" + d)
if libc.mount(b"overlay", b"/dev/shm/overlay", b"overlay", 0, b"lowerdir=/,upperdir=/dev/shm/upper,workdir=/dev/shm/work"):
    raise OSError(ctypes.get_errno(), "mount")
places = ("/root/place", "/dev/shm/overlay/place")
out = {}
def measure(rounds, ops, tidy=lambda p: None):
    took = {}
    for n in range(rounds):
        for i in ((0, 1), (1, 0))[n % 2]:
            for op, fn in ops:
                took.setdefault(op, ([], []))[i].append(clock(lambda: fn(places[i])))
            tidy(places[i])
    for op, both in took.items():
        out[op] = [statistics.median(ms) for ms in both]
for place in places:
    os.mkdir(place)
    with open(place + "/blocks", "wb") as h:
        for _ in range(100):
            h.write(os.urandom(1 << 20))
measure(9, [("read4k", lambda p: blocks(p + "/blocks", False))])
measure(9, [("write4k", lambda p: blocks(p + "/blocks", True))])
for place in places:
    os.unlink(place + "/blocks")
measure(2, [
    ("untar", lambda p: run("tar", "-xf", "/root/tree.tar", "-C", p)),
    ("find", lambda p: run("find", p)),
    ("stat", stat),
], lambda p: shutil.rmtree(p + "/tree"))
for place in places:
    shutil.rmtree(place)
python = ("/usr/bin/python3", "-c", "import numpy")
measure(5, [("import", lambda p: run(*python) if p == places[0] else run("chroot", "/dev/shm/overlay", *python))])
os.unlink("/root/tree.tar")
if libc.umount2(b"/dev/shm/overlay", 0):
    raise OSError(ctypes.get_errno(), "umount")
for d in ("upper", "work", "overlay"):
    shutil.rmtree("/dev/shm/" + d)
print(json.dumps(out))
`

// files measures the operations on files.
func (b *bench) files(ctx context.Context) error {
	b.progress("%s", caseFiles)
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return err
	}
	if err := b.s.Warm(ctx, sb.ID); err != nil {
		return err
	}
	samples := map[string][]sample{}
	for range b.opts.Runs {
		out, err := b.s.Ask(ctx, sb.ID, filesProgram)
		if err != nil {
			return fmt.Errorf("%s: %w", caseFiles, err)
		}
		var ms map[string][2]float64
		if err := json.Unmarshal([]byte(out), &ms); err != nil {
			return fmt.Errorf("%s: %w", caseFiles, err)
		}
		work := b.speed.sample()
		for op, both := range ms {
			samples[op] = append(samples[op], sample{roundtripMS: both[0], overlayMS: both[1], workMS: work})
		}
	}
	for _, op := range fileOps {
		b.add(kind{name: fileOp(op.name), n: 1}, samples[op.name])
	}
	return b.s.Destroy(ctx, sb.ID)
}

func fileOp(op string) string { return caseFiles + "-" + op }

// changedFiles is the number of files that each of two children changes before a diff.
const changedFiles = 10

// diff measures the comparison of two children of a source with many files.
func (b *bench) diff(ctx context.Context, ref string) (sample, error) {
	forked, err := b.s.ForkUntouched(ctx, ref, 2)
	if err != nil {
		return nil, err
	}
	for _, id := range forked.IDs() {
		if _, err := b.s.Shell(ctx, id, fmt.Sprintf("for i in $(seq 1 %d); do cat /etc/machine-id >> /root/files/${i}00; done", changedFiles)); err != nil {
			return nil, err
		}
	}
	work := b.speed.sample()
	began := time.Now()
	d, err := b.c.Sandboxes.Diff(ctx, forked.IDs()[0], forked.IDs()[1], api.DiffRequest{Paths: []string{"/root/files"}})
	if err != nil {
		return nil, err
	}
	took := millis(time.Since(began))
	if len(d.Changes) != changedFiles {
		return nil, fmt.Errorf("the diff has %d changes, not %d", len(d.Changes), changedFiles)
	}
	return sample{roundtripMS: took, workMS: work}, b.s.Destroy(ctx, forked.IDs()...)
}
