package apt

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/debian/bounded"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// Source is one suite of one archive.
type Source struct {
	URI        *url.URL
	Suite      string
	Components []string
	SignedBy   []string // key files or fingerprints; empty: the trusted set
	KeyBlock   string   // an armored key given in place
	File       string   // where it is configured, "" for a mirror that the caller names

	archs []string // empty: all
}

// hostSources reads apt's source files below root and returns all binary
// sources in apt's order, with the files that were read.
func hostSources(root string) (srcs []Source, searched []string, err error) {
	files := []string{filepath.Join(root, "etc/apt/sources.list")}
	more, _ := filepath.Glob(filepath.Join(root, "etc/apt/sources.list.d/*"))
	sort.Strings(more)
	for _, f := range append(files, more...) {
		ext := filepath.Ext(f)
		if ext != ".list" && ext != ".sources" {
			continue
		}
		data, err := bounded.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		searched = append(searched, f)
		var got []Source
		if ext == ".list" {
			got, err = parseOneLine(f, string(data))
		} else {
			got, err = parseDeb822(f, data)
		}
		if err != nil {
			return nil, nil, err
		}
		srcs = append(srcs, got...)
	}
	return srcs, searched, nil
}

// parseOneLine reads the classic format: deb [options] uri suite component...
func parseOneLine(file, text string) ([]Source, error) {
	var out []Source
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
		kind, rest, _ := strings.Cut(line, " ")
		if kind != "deb" {
			continue
		}
		s := Source{File: file}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			opts, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				return nil, fault.Malformed(file, "option list without ]: %.120q", line)
			}
			s.setOptions(strings.Fields(opts))
			rest = after
		}
		words := strings.Fields(rest)
		if len(words) < 2 {
			return nil, fault.Malformed(file, "source without a suite: %.120q", line)
		}
		if !s.locate(words[0], words[1]) {
			continue
		}
		s.Components = words[2:]
		out = append(out, s)
	}
	return out, nil
}

func (s *Source) setOptions(opts []string) {
	for _, o := range opts {
		key, value, _ := strings.Cut(o, "=")
		switch strings.ToLower(key) {
		case "arch":
			s.archs = strings.Split(value, ",")
		case "signed-by":
			s.SignedBy = strings.Split(value, ",")
		}
	}
}

// parseDeb822 reads the stanza format. One stanza stands for every pair of its
// URIs and suites.
func parseDeb822(file string, data []byte) ([]Source, error) {
	var out []Source
	r := control.NewReader(file, bytes.NewReader(data))
	r.Comments = true
	for {
		st, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(strings.Fields(st.Get("Types")), "deb") || strings.EqualFold(st.Get("Enabled"), "no") {
			continue
		}
		base := Source{
			File:       file,
			Components: strings.Fields(st.Get("Components")),
			archs:      strings.Fields(st.Get("Architectures")),
		}
		if key := st.Get("Signed-By"); strings.Contains(key, "BEGIN PGP") {
			base.KeyBlock = unfoldKey(key)
		} else {
			base.SignedBy = strings.FieldsFunc(key, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
		}
		for _, uri := range strings.Fields(st.Get("URIs")) {
			for _, suite := range strings.Fields(st.Get("Suites")) {
				if s := base; s.locate(uri, suite) {
					out = append(out, s)
				}
			}
		}
	}
}

// unfoldKey undoes the folding of a multi-line field: one leading space is
// dropped, and a line with a single dot is an empty one.
func unfoldKey(value string) string {
	lines := strings.Split(value, "\n")
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if l == "." {
			l = ""
		}
		lines[i] = l
	}
	return strings.Join(lines, "\n") + "\n"
}

// locate sets address and suite. It reports false for sources that Ramet cannot use:
// other transports (cdrom, mirror lists, tor) and flat archives.
func (s *Source) locate(uri, suite string) bool {
	u, err := url.Parse(strings.TrimRight(uri, "/"))
	if err != nil || strings.HasSuffix(suite, "/") || !ValidSuite(suite) {
		return false
	}
	switch u.Scheme {
	case "http", "https", "file":
	case "copy": // apt's other name for a local directory
		u.Scheme = "file"
	default:
		return false
	}
	s.URI, s.Suite = u, suite
	return true
}

// URL returns the address of a path below the archive.
func (s *Source) URL(path string) string { return s.URI.JoinPath(path).String() }

func (s *Source) offers(arch string) bool {
	return len(s.archs) == 0 || slices.Contains(s.archs, arch)
}

var suiteNames = regexp.MustCompile(`^[A-Za-z0-9._+~-][A-Za-z0-9._+~/-]{0,98}$`)

// ValidSuite accepts names of suites and components. They become part of a URL, so they
// have letters, digits and a few marks only, and no dot segments.
func ValidSuite(s string) bool { return suiteNames.MatchString(s) && !strings.Contains(s, "..") }

// suiteFamily reports whether name is suite or its updates or security part.
// Backports and proposed updates are not: they replace packages on request.
func suiteFamily(suite, name string) bool {
	switch strings.TrimPrefix(name, suite) {
	case "", "-updates", "-security", "/updates":
		return strings.HasPrefix(name, suite)
	}
	return false
}

// Query says which sources are wanted.
type Query struct {
	HostRoot   string   // where the configuration of apt is
	Mirror     string   // "": the sources of the host; else the URL of the only archive
	Suite      string   // "": the code name of the host, else the suite of its first source
	Arch       string   // a Debian architecture name
	Components []string // empty: those of the sources, or "main" of a mirror
}

// Select returns the sources that q asks for, and the suite that they are of.
func Select(q Query) (srcs []Source, suite string, err error) {
	suite = q.Suite
	if suite == "" {
		suite = OSRelease(q.HostRoot)["VERSION_CODENAME"]
	}
	if q.Mirror != "" {
		srcs, err = mirrorSource(q, suite)
		return srcs, suite, err
	}
	all, searched, err := hostSources(q.HostRoot)
	if err != nil {
		return nil, "", err
	}
	for _, s := range all {
		if suite == "" && slices.Contains(s.Components, "main") {
			suite = s.Suite // a host without a code name: its first source decides
		}
		if suite == "" || !suiteFamily(suite, s.Suite) || !s.offers(q.Arch) {
			continue
		}
		if s.Components = wantedComponents(q.Components, s.Components); len(s.Components) > 0 {
			srcs = append(srcs, s)
		}
	}
	if len(srcs) == 0 {
		return nil, "", &fault.NoSourcesError{Suite: suite, Searched: searched}
	}
	// The suite itself leads, so that its Origin decides which others belong to it.
	sort.SliceStable(srcs, func(i, j int) bool { return srcs[i].Suite == suite && srcs[j].Suite != suite })
	return srcs, suite, nil
}

func mirrorSource(q Query, suite string) ([]Source, error) {
	if suite == "" {
		return nil, &fault.NoSourcesError{}
	}
	s := Source{Components: q.Components}
	if len(s.Components) == 0 {
		s.Components = []string{"main"}
	}
	if !s.locate(q.Mirror, suite) {
		return nil, api.Invalid("mirror", "must be an http, https or file URL, not %q", Redact(q.Mirror))
	}
	return []Source{s}, nil
}

// wantedComponents returns those of have that are wanted; nothing wanted means
// all, but only of an archive with "main", which sets distributions apart from
// most vendors' archives.
func wantedComponents(want, have []string) []string {
	if len(want) == 0 {
		if slices.Contains(have, "main") {
			return have
		}
		return nil
	}
	var out []string
	for _, c := range have {
		if slices.Contains(want, c) {
			out = append(out, c)
		}
	}
	return out
}

// OSRelease returns the fields of the host's os-release file.
func OSRelease(root string) map[string]string {
	out := map[string]string{}
	for _, p := range []string{"etc/os-release", "usr/lib/os-release"} {
		data, err := bounded.ReadFile(filepath.Join(root, p))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(data), "\n") {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				out[k] = strings.Trim(v, `"'`)
			}
		}
		return out
	}
	return out
}

// Redact removes a password from an address that will be shown.
func Redact(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return "an invalid URL"
	}
	return u.Redacted()
}
