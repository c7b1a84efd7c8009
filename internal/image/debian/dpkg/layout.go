package dpkg

// baseDirs exist before any package is unpacked, with modes that hold even if
// base-files is not installed.
var baseDirs = []struct {
	path string
	mode int64
}{
	{"usr", 0o755},
	{"usr/bin", 0o755},
	{"usr/sbin", 0o755},
	{"usr/lib", 0o755},
	{"dev", 0o755},
	{"etc", 0o755},
	{"proc", 0o555},
	{"root", 0o700},
	{"run", 0o755},
	{"sys", 0o555},
	{"tmp", 0o1777},
	{"var", 0o755},
	{"var/lib", 0o755},
	{"var/lib/dpkg", 0o755},
	{"var/tmp", 0o1777},
}

// mergedLinks are the top-level directories that are links into /usr on every
// Debian since 12.
var mergedLinks = []string{"bin", "sbin", "lib"}

// archLinks are the further library directories of some architectures.
var archLinks = map[string][]string{
	"amd64":   {"lib32", "lib64", "libx32"},
	"i386":    {"lib64", "libx32"},
	"loong64": {"lib64"},
	"ppc64":   {"lib64"},
	"ppc64el": {"lib64"},
	"s390x":   {"lib32"},
}

// Begin writes the layout that packages are unpacked into.
func (r *Writer) Begin(arch string) error {
	for _, d := range baseDirs {
		if err := r.mkdir(d.path, d.mode); err != nil {
			return err
		}
	}
	for _, name := range append(append([]string{}, mergedLinks...), archLinks[arch]...) {
		if err := r.mkdir("usr/"+name, 0o755); err != nil {
			return err
		}
		if err := r.symlinkTo(name, "usr/"+name); err != nil {
			return err
		}
	}
	return nil
}

// File is a generated file.
type File struct {
	Path string // without a leading slash
	Mode int64
	Text string
}

// End writes the files that a system needs besides its packages, those of more, and
// dpkg's database. A file that a package has is left alone.
func (r *Writer) End(arch string, more ...File) error {
	// Maintainer scripts run with users and groups in place: base-passwd would
	// make these files, but only when its own turn comes.
	passwd, group := r.saved["usr/share/base-passwd/passwd.master"], r.saved["usr/share/base-passwd/group.master"]
	if passwd == nil || group == nil {
		passwd, group = []byte("root:x:0:0:root:/root:/bin/sh\n"), []byte("root:x:0:\n")
	}
	files := []File{
		{"etc/passwd", 0o644, string(passwd)},
		{"etc/group", 0o644, string(group)},
		{"etc/hostname", 0o644, "localhost\n"},
		{"etc/hosts", 0o644, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
		{"etc/resolv.conf", 0o644, ""},
		{"etc/machine-id", 0o444, ""},
		{"etc/default/locale", 0o644, "LANG=C.UTF-8\n"},
		// No package may start a service while it is configured: nothing in a
		// sandbox would manage it.
		{"usr/sbin/policy-rc.d", 0o755, "#!/bin/sh\nexit 101\n"},
	}
	files = append(append(files, more...), File{dpkgDir + "arch", 0o644, arch + "\n"})
	// mount(8), df(1) and many other programs read what is mounted there.
	if err := r.symlinkTo("etc/mtab", "../proc/self/mounts"); err != nil {
		return err
	}
	for _, f := range files {
		if err := r.write(f.Path, f.Mode, []byte(f.Text)); err != nil {
			return err
		}
	}
	return r.writeDatabase()
}
