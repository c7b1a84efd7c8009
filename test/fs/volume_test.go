package fs

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// volumeKnown are the cases, or beginnings of their names, that fail in a volume, with the reason.
var volumeKnown = map[string]string{
	"open/nofollow-directory-link": fsKnown["open/nofollow-directory-link"],
	"chown/same-foreign-group":     fsKnown["chown/same-foreign-group"],

	"tmpfile/":                    "files without a name cannot be made",
	"socket/":                     "sockets cannot be bound: a process of another sandbox could not connect",
	"mknod/socket":                "likewise",
	"mknod/null":                  "volumes are mounted with nodev: devices are not opened",
	"mknod/zero":                  "likewise",
	"mknod/no-such-device":        "likewise",
	"exchange/":                   "kernfs knows no RENAME_EXCHANGE",
	"inotify/exchange":            "likewise",
	"truncate/huge":               "the limit counts sizes",
	"times/list":                  "reading does not change the times of directories and links",
	"times/readlink":              "likewise",
	"utimes/exact":                "contents are files of the host, whose time of access cannot be before 1970",
	"setgid/not-of-foreign-group": "a mark for mandatory locks is kept",
	"link/of-others":              "kernfs does not restrict links to what others own",
	"rename/file-over-own-parent": "the error is EISDIR",
	"rename/file-with-slash":      "kernfs ignores a slash at the end",
	"rename/file-to-slash":        "likewise",
	"rename/link-with-slash":      "likewise",
	"unlink/link-with-slash":      "kernfs follows the link",
	"xattr/prefix-alone":          "there are attributes of user. only",
	"xattr/trusted-by-root":       "likewise",
	"inotify/setxattr":            "kernfs tells nobody",
	"inotify/link":                "kernfs tells of a new name twice",
}

// TestVolumeConformance tries what POSIX and the manual pages of Linux say about files in a volume
// that a child of a fork shares. It takes 25 s, as it runs some thousand cases, each in a directory of its own.
func TestVolumeConformance(t *testing.T) {
	n := harness.NewFSNode(t)
	if _, err := n.Machine.CreateVolume(harness.AsOwner, api.VolumeRequest{Name: "data", LimitMiB: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	volumes := []api.VolumeMount{{Volume: "data", Path: "/data"}}
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "fs", Name: "box", Volumes: volumes}); err != nil {
		t.Fatal(err)
	}
	ref := n.Fork("box", 1)[0].ID // which shares the volume
	failed := map[string]bool{}
	for _, r := range fsResults(t, n.Long(ref, "fs", "run", "-mode", "new", "-skip", "^(readdir/(large|small|removed)|deep/path)", "-dir", "/data/cases")) {
		why := ""
		for name, reason := range volumeKnown {
			if r.Name == name || strings.HasSuffix(name, "/") && strings.HasPrefix(r.Name, name) {
				why = reason
				failed[name] = failed[name] || r.Error != ""
			}
		}
		if r.Error != "" && why == "" {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
	for name := range volumeKnown {
		if !failed[name] {
			t.Errorf("%s works now: take it out of volumeKnown", name)
		}
	}
}
