package main

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// fuzzKind is a kind of operation and how often it comes up.
type fuzzKind struct {
	weight  int
	feature string // that it needs
	gen     func(z *fuzzer) fuzzOp
}

var fuzzKinds = []fuzzKind{
	// Contents, by name.
	{12, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "put", A: z.target("f"), Mode: z.flags(trunc, excl, unix.O_APPEND), Len: z.length(), At: int64(z.mode())}
	}},
	{6, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "cat", A: z.file("f"), At: z.offset(), Len: z.length()} }},
	{4, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "truncate", A: z.file("f"), At: z.offset()} }},
	// Contents, by descriptor.
	{8, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "open", A: z.file("f"), Slot: z.slot(), Mode: z.pick(rdonly, rdwr, rdwr, wronly) | z.flags(creat, trunc, excl, unix.O_APPEND, unix.O_NOFOLLOW)}
	}},
	{10, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "pwrite", Slot: z.slot(), At: z.offset(), Len: z.length()} }},
	{5, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "write", Slot: z.slot(), Len: z.length()} }},
	{5, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "pread", Slot: z.slot(), At: z.offset(), Len: z.length()} }},
	{3, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "read", Slot: z.slot(), Len: z.length()} }},
	{2, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "seek", Slot: z.slot(), At: z.offset(), Mode: z.rng.IntN(3)} }},
	{4, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "ftruncate", Slot: z.slot(), At: z.offset()} }},
	{2, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "fallocate", Slot: z.slot(), At: z.offset(), Len: z.length()}
	}},
	{1, "keepsize", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "fallocate", Slot: z.slot(), At: z.offset(), Len: z.length(), Mode: unix.FALLOC_FL_KEEP_SIZE}
	}},
	{4, "punch", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "fallocate", Slot: z.slot(), At: z.offset(), Len: z.length(), Mode: unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE}
	}},
	{4, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "fstat", Slot: z.slot()} }},
	{1, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "fchmod", Slot: z.slot(), Mode: z.mode()} }},
	{1, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "fsync", Slot: z.slot()} }},
	{4, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "close", Slot: z.slot()} }},
	{2, "tmpfile", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "tmpfile", A: z.file("d"), Slot: z.slot(), Mode: z.mode()} }},
	{1, "tmpfile", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "linkfd", A: z.target("f"), Slot: z.slot()} }},
	// Contents, by memory.
	{4, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "map", A: z.file("f"), Slot: z.rng.IntN(fuzzMaps)} }},
	{6, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "mapwrite", Slot: z.rng.IntN(fuzzMaps), At: z.offset(), Len: z.length()}
	}},
	{6, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "mapread", Slot: z.rng.IntN(fuzzMaps), At: z.offset(), Len: z.length()}
	}},
	{2, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "unmap", Slot: z.rng.IntN(fuzzMaps)} }},
	{2, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "mapprivate", A: z.file("f"), At: z.offset(), Len: z.length()}
	}},
	// Names.
	{5, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "mkdir", A: z.target("d"), Mode: z.mode()} }},
	{3, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "rmdir", A: z.file("d")} }},
	{7, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "unlink", A: z.file("flp")} }},
	{14, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "rename", A: z.file("fdlp"), B: z.target("fdlp")} }},
	{2, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "rename", A: z.file("fdlp"), B: z.target("fdlp"), Mode: unix.RENAME_NOREPLACE}
	}},
	{5, "exchange", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "rename", A: z.file("fdlp"), B: z.file("fdlp"), Mode: unix.RENAME_EXCHANGE}
	}},
	{6, "link", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "link", A: z.file("fffflp"), B: z.target("f")} }},
	{3, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "symlink", B: z.aim(), A: z.target("l")} }},
	{1, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "readlink", A: z.file("l")} }},
	{1, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "mkfifo", A: z.target("p"), Mode: z.mode()} }},
	{4, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "list", A: z.file("ddddf")} }},
	// Attributes.
	{5, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "chmod", A: z.file("fdp"), Mode: z.mode()} }},
	{3, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "chown", A: z.file("fdlp"), Mode: z.pick(0, userID, 7, -1), Len: z.pick(0, userGroup, otherGroup, 7, -1)}
	}},
	{4, "", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "utimes", A: z.file("fdlp"), At: z.rng.Int64N(1e9), Len: z.rng.IntN(1e9)}
	}},
	{8, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "stat", A: z.file("fdlp")} }},
	{2, "", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "access", A: z.file("fd"), Mode: z.rng.IntN(8)} }},
	{4, "xattr", func(z *fuzzer) fuzzOp {
		return fuzzOp{Op: "setxattr", A: z.file("fd"), B: z.xattrName(), Len: z.pick(0, 1, 10, 100, 3000, 20000), Mode: z.pick(0, 0, 0, unix.XATTR_CREATE, unix.XATTR_REPLACE)}
	}},
	{2, "xattr", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "getxattr", A: z.file("fd"), B: z.xattrName()} }},
	{1, "xattr", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "listxattr", A: z.file("fd")} }},
	{2, "xattr", func(z *fuzzer) fuzzOp { return fuzzOp{Op: "removexattr", A: z.file("fd"), B: z.xattrName()} }},
}

// next makes up an operation.
func (z *fuzzer) next() fuzzOp {
	total := 0
	for _, k := range fuzzKinds {
		total += k.weight
	}
	for {
		n := z.rng.IntN(total)
		i := 0
		for ; n >= fuzzKinds[i].weight; i++ {
			n -= fuzzKinds[i].weight
		}
		op := fuzzKinds[i].gen(z)
		op.Data = z.rng.IntN(1e6)
		op.User = z.rng.IntN(8) == 0 && z.has("user")
		if z.has(fuzzKinds[i].feature) && z.allowed(op) {
			return op
		}
	}
}

// allowed is false for what is not the same everywhere, or not on a file system
// without a feature.
func (z *fuzzer) allowed(op fuzzOp) bool {
	switch op.Op {
	case "link", "linkfd":
		return !op.User // which links a user may make is a setting of the kernel
	case "rename":
		return z.has("related") || !strings.HasPrefix(op.A+"/", op.B+"/") && !strings.HasPrefix(op.B, op.A+"/")
	case "chown":
		if op.User && op.Mode == -1 && op.Len == -1 {
			return false // Linux refuses it for files of others with set-id bits, which nobody else knows
		}
		return z.has("chown") && (z.has("samegroup") || !op.User)
	}
	return true
}

// file is an old file of one of some kinds, or now and then any name.
func (z *fuzzer) file(kinds string) string {
	names := z.names(string(kinds[z.rng.IntN(len(kinds))]))
	if len(names) == 0 || z.rng.IntN(12) == 0 {
		return z.fresh()
	}
	return names[z.rng.IntN(len(names))]
}

// target is a name for a file of one of some kinds: a new one, or that of an old
// file.
func (z *fuzzer) target(kinds string) string {
	if few := len(z.known) < 30; few || len(z.known) < 90 && z.rng.IntN(2) == 0 {
		return z.fresh()
	}
	return z.file(kinds)
}

// fresh is a name that may be new, in a directory or in a link to one.
func (z *fuzzer) fresh() string {
	name := string(rune('a' + z.rng.IntN(14)))
	dirs := z.names("d")
	if z.rng.IntN(10) == 0 && z.has("related") {
		dirs = z.names("dl")
	}
	const deepest = 6
	if len(dirs) > 0 && z.rng.IntN(3) > 0 {
		if dir := dirs[z.rng.IntN(len(dirs))]; strings.Count(dir, "/") < deepest {
			return path.Join(dir, name)
		}
	}
	return name
}

// aim is what a symbolic link points to. It must not lead out of the directory,
// wherever the link is moved.
func (z *fuzzer) aim() string {
	switch z.rng.IntN(6) {
	case 0:
		return "."
	case 1:
		return strings.Repeat("x", 1+z.rng.IntN(300))
	}
	name := z.file("fd")
	if z.rng.IntN(2) == 0 {
		name = path.Base(name)
	}
	return name
}

func (z *fuzzer) slot() int { return z.rng.IntN(fuzzSlots) }

func (z *fuzzer) pick(values ...int) int { return values[z.rng.IntN(len(values))] }

// flags are some of those, each now and then.
func (z *fuzzer) flags(values ...int) int {
	all := 0
	for _, v := range values {
		if z.rng.IntN(4) == 0 {
			all |= v
		}
	}
	return all
}

func (z *fuzzer) mode() int {
	modes := []int{0o644, 0o600, 0o755, 0o777, 0o666, 0o700, 0o750, 0o555, 0o444, 0o000, 0o711, 0o1755}
	if z.has("suid") {
		modes = append(modes, 0o4755, 0o2755, 0o2777, 0o6711, 0o2644)
	}
	return z.pick(modes...)
}

// length is how many bytes to read or write: at least one.
func (z *fuzzer) length() int {
	switch z.rng.IntN(4) {
	case 0:
		return 1 + z.rng.IntN(64)
	case 1:
		return page * (1 + z.rng.IntN(8))
	case 2:
		return page*z.rng.IntN(4) + 1 + z.rng.IntN(64)
	}
	return 1 + z.rng.IntN(40000)
}

// offset is a place in a file, now and then a far one.
func (z *fuzzer) offset() int64 {
	switch z.rng.IntN(8) {
	case 0:
		return 0
	case 1, 2:
		return int64(page * z.rng.IntN(20))
	case 3:
		return max(0, int64(page*z.rng.IntN(20)+z.rng.IntN(9)-4))
	case 4:
		if z.rng.IntN(10) == 0 && z.has("far") {
			return z.rng.Int64N(1 << 34)
		}
		return int64(z.rng.IntN(300000))
	}
	return int64(z.rng.IntN(20000))
}

func (z *fuzzer) xattrName() string {
	return "user." + string(rune('a'+z.rng.IntN(4)))
}
