package integration

import (
	"strings"
	"testing"
)

// fsFault is a reason why cases fail, and which: names with spaces between them.
type fsFault struct{ why, cases string }

// fsFaultsOfGVisor fail whatever the root file system is, because gVisor does
// not ask it.
var fsFaultsOfGVisor = []fsFault{
	{"with O_DIRECTORY a link is followed in spite of O_NOFOLLOW", "open/nofollow-directory-link"},
}

// fsFaultsOfOverlay fail on gVisor's overlay on tmpfs.
var fsFaultsOfOverlay = []fsFault{
	{"there is no O_TMPFILE", "tmpfile/excl-is-never-linked tmpfile/group-of-directory tmpfile/linked tmpfile/linked-by-descriptor tmpfile/nameless"},
	{"every directory has the link count 1", "deleted/and-again deleted/directory-made-again deleted/emptied-can-be-removed exchange/file-and-directory " +
		"mkdir/many-subdirectories mkdir/nlink-of-parent mkdir/plain rename/directory-over-empty rename/directory-to-other rmdir/plain " +
		"rmdir/while-open rmdir/nlink-0-after-made-again"},
	{"two names of one file are two files for attributes, locks and watches", "link/of-before link/of-before-renamed link/shared-data " +
		"flock/survives-changes lock/conflicts lock/goes-with-any-close lock/open-file-description inotify/by-other-name rename/same-inode"},
	{"ctime stays when links or attributes change", "link/plain unlink/one-name-of-two times/removexattr times/setxattr times/unlink-one-name"},
	{"holes are not known", "sparse/blocks sparse/seek sparse/seek-in-data"},
	{"directories have another device than files, and entries another inode than stat says", "open/inode-stays readdir/types-and-inodes"},
	{"set-id bits: kept by O_TRUNC, lost when root writes, given for a group the user is not in", "suid/cleared-by-trunc suid/kept-by-root setgid/not-of-foreign-group"},
	{"names that are too long are not found", "rename/from-name-256 rmdir/name-256 unlink/name-256"},
	{"another error than Linux's", "rename/file-over-own-parent unlink/directory-with-slash"},
	{"everybody may use O_NOATIME, see names of trusted attributes and set half of the times to now", "open/noatime xattr/trusted-by-root utimes/half-of-other"},
	{"an owner cannot set the group that a file has, unless it is in it", "chown/same-foreign-group"},
	{"times before 1970 become wrong", "utimes/exact"},
}

// fsFaultsOfOverlayImage fail there for files of the image only.
var fsFaultsOfOverlayImage = []fsFault{
	{"a file gets another inode when it is changed, and loses its other names", "exchange/files exchange/same-inode link/of-before-open link/of-before-unlinked " +
		"link/over-unlinked-name rename/directory rename/over-file rename/over-one-name-of-two rename/plain " +
		"mmap/read-only-sees-write mmap/shared-write mmap/two-mappings xattr/of-the-inode"},
	{"fifos cannot be opened or linked, and become something else when renamed", "fallocate/invalid fifo/data fifo/no-reader fifo/other-name fifo/permissions " +
		"link/of-fifo open/fifo-without-reader rename/fifo"},
	{"a call that changes nothing, or the file only, changes the directory", "fallocate/punch-needs-keep-size fallocate/zero-range io/invalid mmap/not-permitted open/access-modes " +
		"open/creat-existing open/nofollow-dangling-link sticky/rmdir sticky/unlink sticky/unlink-writable truncate/directory " +
		"xattr/remove-missing xattr/replace-missing xattr/unknown-class " +
		"times/append times/change-below times/chmod times/chown times/fsync times/ftruncate times/grow times/open-to-write times/pwrite times/trunc times/truncate " +
		"times/utimes times/write times/write-nothing"},
	{"attributes are not supported until the file is changed", "xattr/get-missing"},
}

// fsFaultsOfOverlayOnceMade fail there for all files but those of the image.
var fsFaultsOfOverlayOnceMade = []fsFault{
	{"ctime stays when a link is made", "times/link"},
}

// fsKnown tells failures that are expected from others.
type fsKnown struct{ kind string }

// newFSKnown asks which root file system the sandbox "box" has.
func newFSKnown(t testing.TB, n *node) *fsKnown {
	t.Helper()
	k := &fsKnown{strings.TrimSpace(n.guest("box", "fs", "type"))}
	t.Logf("root file system: %s", k.kind)
	return k
}

// overlay says whether it is gVisor's overlay.
func (k *fsKnown) overlay() bool { return k.kind == "overlay" }

// of returns the reasons by case.
func (k *fsKnown) of(mode string) map[string]string {
	lists := [][]fsFault{fsFaultsOfGVisor}
	if k.overlay() {
		lists = append(lists, fsFaultsOfOverlay)
		if mode == "image" {
			lists = append(lists, fsFaultsOfOverlayImage)
		} else {
			lists = append(lists, fsFaultsOfOverlayOnceMade)
		}
	}
	reasons := map[string]string{}
	for _, list := range lists {
		for _, f := range list {
			for name := range strings.FieldsSeq(f.cases) {
				reasons[name] = f.why
			}
		}
	}
	return reasons
}

// judge compares the results of a run with what is expected. No more may fail,
// and no less, or the lists above say what is not true.
func (k *fsKnown) judge(t *testing.T, mode string, least int, out string) {
	t.Helper()
	results, reasons := fsResults(t, out), k.of(mode)
	failed, ms := 0, 0.0
	for _, r := range results {
		ms += r.MS
		why := reasons[r.Name]
		delete(reasons, r.Name)
		switch {
		case r.Skip != "":
			t.Logf("skip: %s: %s", r.Name, r.Skip)
		case r.Error == "" && why != "":
			t.Errorf("%s (%s) works now; take it off the list of what fails because: %s", r.Name, mode, why)
		case r.Error != "" && why != "":
			failed++
			t.Logf("known: %s: %s (%s)", r.Name, r.Error, why)
		case r.Error != "":
			failed++
			t.Errorf("%s (%s): %s", r.Name, mode, r.Error)
		}
	}
	t.Logf("%s: %d cases, %d failed, %.0f ms", mode, len(results), failed, ms)
	if len(results) < least {
		t.Errorf("there were only %d cases", len(results))
	}
	if least == fsMinCases {
		for name, why := range reasons {
			t.Errorf("there is no case %s, which is said to fail because: %s", name, why)
		}
	}
}
