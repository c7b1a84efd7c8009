package volumes

import (
	"encoding/json"
	"io"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/storage/volume"
)

const fuzzed = "vol_aaaaaaaaaaaaaaaa"

func newVolumes(tb testing.TB) *Volumes {
	v := &Volumes{
		cfg: Config{Dir: tb.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, all: map[string]*entry{fuzzed: {record: record{ID: fuzzed, LimitMiB: 1}}},
		served: map[*launch.Sentry]bool{}, held: map[heldFile]map[*launch.Sentry]bool{},
	}
	tb.Cleanup(v.Close)
	return v
}

// TestReadOnly refuses all changes of a sandbox that may only read, and hands out no descriptor to
// write with.
func TestReadOnly(t *testing.T) {
	v, s := newVolumes(t), &launch.Sentry{}
	ask := func(writable bool, call wire.VolumeCall) (unix.Errno, *wire.VolumeAnswer) {
		call.Volume = fuzzed
		a, f := v.answer(t.Context(), s, map[string]bool{fuzzed: writable}, &call)
		if f != nil {
			defer f.Close()
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || (flags&unix.O_ACCMODE == unix.O_RDWR) != writable {
				t.Errorf("%s gives a descriptor with flags %#o, %v", call.Op, flags, err)
			}
		}
		return unix.Errno(a.Errno), a
	}
	errno, made := ask(true, wire.VolumeCall{Op: wire.VolumeMake, Ino: volume.Root, Name: []byte("f"), Node: &wire.VolumeNode{Mode: unix.S_IFREG | 0o644}})
	if errno != 0 {
		t.Fatal(errno)
	}
	size := int64(0)
	for _, call := range []wire.VolumeCall{
		{Op: wire.VolumeMake, Ino: volume.Root, Name: []byte("g"), Node: &wire.VolumeNode{Mode: unix.S_IFREG}}, {Op: wire.VolumeSetAttr, Ino: made.Attr.Ino, Set: &wire.VolumeSet{Size: &size}},
		{Op: wire.VolumeLink, Ino: made.Attr.Ino, To: volume.Root, NewName: []byte("h")}, {Op: wire.VolumeUnlink, Ino: volume.Root, Name: []byte("f")}, {Op: wire.VolumeRmdir, Ino: volume.Root, Name: []byte("f")},
		{Op: wire.VolumeRename, Ino: volume.Root, Name: []byte("f"), To: volume.Root, NewName: []byte("g")}, {Op: wire.VolumeGrow, Ino: made.Attr.Ino, Size: 1},
		{Op: wire.VolumeSetX, Ino: made.Attr.Ino, Name: []byte("user.a")}, {Op: wire.VolumeRemoveX, Ino: made.Attr.Ino, Name: []byte("user.a")},
		{Op: wire.VolumeOpen, Ino: made.Attr.Ino, Append: true}, {Op: "unknown"},
	} {
		if errno, _ := ask(false, call); errno != unix.EROFS {
			t.Errorf("%s: %v", call.Op, errno)
		}
	}
	for _, call := range []wire.VolumeCall{{Op: wire.VolumeOpen, Ino: made.Attr.Ino}, {Op: wire.VolumeLookup, Ino: volume.Root, Name: []byte("f")}} {
		if errno, _ := ask(false, call); errno != 0 {
			t.Errorf("%s: %v", call.Op, errno)
		}
	}
	if a, _ := v.answer(t.Context(), s, map[string]bool{"vol_baaaaaaaaaaaaaaa": true}, &wire.VolumeCall{Volume: fuzzed, Op: wire.VolumeStat, Ino: volume.Root}); unix.Errno(a.Errno) != unix.EACCES {
		t.Errorf("a volume that the sandbox has not: %v", unix.Errno(a.Errno))
	}
}

// FuzzOperation does what a sentry that was taken over may ask for. Nothing of it is a defect of
// the daemon, and the volume is what it is said to be afterwards.
func FuzzOperation(f *testing.F) {
	for _, seed := range []string{
		`{"op":"make","ino":1,"name":"Zg==","node":{"mode":33188}}`, `{"op":"make","ino":1,"name":"ZA==","node":{"mode":16877}}`, `{"op":"unlink","ino":1,"name":"Zg==","hold":true}`,
		`{"op":"rename","ino":1,"name":"Zg==","to":2,"new_name":"Zw==","hold":true}`, `{"op":"setattr","ino":2,"set":{"size":-1}}`, `{"op":"grow","ino":2,"size":9223372036854775807}`,
		`{"op":"setxattr","ino":2,"name":"dXNlci5h","value":"YQ==","flags":3}`, `{"op":"list","ino":1}`, `{"op":"forget","ino":1}`, `{"op":"open","ino":18446744073709551615}`,
	} {
		f.Add([]byte(seed), []byte(`{"op":"link","ino":2,"to":1,"new_name":"bA=="}`))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		v, s := newVolumes(t), &launch.Sentry{}
		for _, text := range [][]byte{[]byte(`{"op":"make","ino":1,"name":"Zg==","node":{"mode":33188}}`), one, two, one} {
			var call wire.VolumeCall
			if json.Unmarshal(text, &call) != nil {
				return
			}
			call.Volume = fuzzed
			a, file := v.answer(t.Context(), s, map[string]bool{fuzzed: true}, &call)
			if file != nil {
				file.Close()
			}
			if unix.Errno(a.Errno) == unix.EIO {
				t.Errorf("%s is an error of the daemon", text)
			}
		}
		files := v.all[fuzzed].opened
		used, _, _, err := files.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held := int64(len(v.held))
		files.Close()
		v.all[fuzzed].opened = nil
		again, err := volume.Open(t.Context(), v.dir(fuzzed), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if now, _, _, err := again.Usage(t.Context()); err != nil || now != used && held == 0 {
			t.Errorf("%d bytes are used, counted anew %d, %v", used, now, err)
		}
	})
}
