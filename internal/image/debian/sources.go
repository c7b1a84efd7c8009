package debian

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"ramet.dev/ramet/api"
)

// source is one suite of one archive.
type source struct {
	uri        *url.URL
	suite      string
	components []string
	archs      []string // empty: all
	signedBy   []string // key files or fingerprints; empty: the trusted set
	keyBlock   string   // an armored key given in place
	file       string   // where it is configured, "" for Options.Mirror
}

// hostSources reads apt's source files below root and returns all binary
// sources in apt's order, with the files that were read.
func hostSources(root string) (srcs []source, searched []string, err error) {
	files := []string{filepath.Join(root, "etc/apt/sources.list")}
	more, _ := filepath.Glob(filepath.Join(root, "etc/apt/sources.list.d/*"))
	sort.Strings(more)
	for _, f := range append(files, more...) {
		ext := filepath.Ext(f)
		if ext != ".list" && ext != ".sources" {
			continue
		}
		data, err := readSmallFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		searched = append(searched, f)
		var got []source
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
func parseOneLine(file, text string) ([]source, error) {
	var out []source
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
		kind, rest, _ := strings.Cut(line, " ")
		if kind != "deb" {
			continue
		}
		s := source{file: file}
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			opts, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				return nil, malformed(file, "option list without ]: %.120q", line)
			}
			s.setOptions(strings.Fields(opts))
			rest = after
		}
		words := strings.Fields(rest)
		if len(words) < 2 {
			return nil, malformed(file, "source without a suite: %.120q", line)
		}
		if !s.locate(words[0], words[1]) {
			continue
		}
		s.components = words[2:]
		out = append(out, s)
	}
	return out, nil
}

func (s *source) setOptions(opts []string) {
	for _, o := range opts {
		key, value, _ := strings.Cut(o, "=")
		switch strings.ToLower(key) {
		case "arch":
			s.archs = strings.Split(value, ",")
		case "signed-by":
			s.signedBy = strings.Split(value, ",")
		}
	}
}

// parseDeb822 reads the stanza format. One stanza stands for every pair of its
// URIs and suites.
func parseDeb822(file string, data []byte) ([]source, error) {
	var out []source
	r := newStanzaReader(file, bytes.NewReader(data))
	r.comments = true
	for {
		st, err := r.next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(strings.Fields(st.get("Types")), "deb") || strings.EqualFold(st.get("Enabled"), "no") {
			continue
		}
		base := source{
			file:       file,
			components: strings.Fields(st.get("Components")),
			archs:      strings.Fields(st.get("Architectures")),
		}
		if key := st.get("Signed-By"); strings.Contains(key, "BEGIN PGP") {
			base.keyBlock = unfoldKey(key)
		} else {
			base.signedBy = strings.FieldsFunc(key, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
		}
		for _, uri := range strings.Fields(st.get("URIs")) {
			for _, suite := range strings.Fields(st.get("Suites")) {
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

// locate sets address and suite. It reports false for what Build cannot use:
// other transports (cdrom, mirror lists, tor) and flat archives.
func (s *source) locate(uri, suite string) bool {
	u, err := url.Parse(strings.TrimRight(uri, "/"))
	if err != nil || strings.HasSuffix(suite, "/") || !validSuite(suite) {
		return false
	}
	switch u.Scheme {
	case "http", "https", "file":
	case "copy": // apt's other name for a local directory
		u.Scheme = "file"
	default:
		return false
	}
	s.uri, s.suite = u, suite
	return true
}

// url returns the address of a path below the archive.
func (s *source) url(path string) string { return s.uri.JoinPath(path).String() }

func (s *source) offers(arch string) bool {
	return len(s.archs) == 0 || slices.Contains(s.archs, arch)
}

// validSuite keeps suite names, which become part of a URL, to letters, digits
// and a few marks, without dot segments.
func validSuite(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isLetter(s[i]) && !isDigit(s[i]) && strings.IndexByte("-_./+~", s[i]) < 0 {
			return false
		}
	}
	return s != "" && len(s) < 100 && s[0] != '/' && !strings.Contains(s, "..")
}

// suiteFamily reports whether name is suite or its updates or security part.
// Backports and proposed updates are not: they replace packages on request.
func suiteFamily(suite, name string) bool {
	switch strings.TrimPrefix(name, suite) {
	case "", "-updates", "-security", "/updates":
		return strings.HasPrefix(name, suite)
	}
	return false
}

// selectSources picks the sources of the suite that opts ask for.
func selectSources(opts *Options) ([]source, error) {
	release := readOSRelease(opts.HostRoot)
	suite := opts.Suite
	if suite == "" {
		suite = release["VERSION_CODENAME"]
	}
	if opts.Mirror != "" {
		return mirrorSource(opts, suite)
	}
	all, searched, err := hostSources(opts.HostRoot)
	if err != nil {
		return nil, err
	}
	var out []source
	for _, s := range all {
		if suite == "" && slices.Contains(s.components, "main") {
			suite = s.suite // a host without a code name: its first source decides
		}
		if suite == "" || !suiteFamily(suite, s.suite) || !s.offers(opts.Arch) {
			continue
		}
		if s.components = wantedComponents(opts.Components, s.components); len(s.components) > 0 {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, &NoSourcesError{Suite: suite, Searched: searched}
	}
	opts.Suite = suite
	// The suite itself leads, so that its Origin decides which others belong to it.
	sort.SliceStable(out, func(i, j int) bool { return out[i].suite == suite && out[j].suite != suite })
	return out, nil
}

func mirrorSource(opts *Options, suite string) ([]source, error) {
	if suite == "" {
		return nil, &NoSourcesError{}
	}
	s := source{components: opts.Components}
	if len(s.components) == 0 {
		s.components = []string{"main"}
	}
	if !s.locate(opts.Mirror, suite) {
		return nil, api.Invalid("mirror", "must be an http, https or file URL, not %q", redact(opts.Mirror))
	}
	opts.Suite = suite
	return []source{s}, nil
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

// readOSRelease returns the fields of the host's os-release file.
func readOSRelease(root string) map[string]string {
	out := map[string]string{}
	for _, p := range []string{"etc/os-release", "usr/lib/os-release"} {
		data, err := readSmallFile(filepath.Join(root, p))
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
