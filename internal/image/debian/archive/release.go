package archive

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"ramet.dev/ramet/internal/image/debian/apt"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
)

const maxRelease = 8 << 20

// Release is a verified release file.
type Release struct {
	Source *apt.Source
	Date   time.Time
	Signer string // fingerprint of the primary key; "" if it was not checked

	origin     string
	names      []string // Suite and Codename
	validUntil time.Time
	byHash     bool
	allInAll   bool // Architecture: all packages have an index of their own
	files      map[string]pkgcache.Digest
}

// Trust says which release files are accepted.
type Trust struct {
	Keyrings      []string // key files instead of those of the host; nil: the host's
	HostRoot      string   // where the keys of the host are
	AllowExpired  bool     // accept release files past Valid-Until
	AllowUnsigned bool     // accept release files without a good signature
	Now           func() time.Time
}

// fetchRelease fetches and verifies the release file of src.
func fetchRelease(ctx context.Context, f *Fetcher, trust Trust, src *apt.Source) (*Release, error) {
	addr := src.URL("dists/" + src.Suite + "/InRelease")
	data, err := f.get(ctx, addr, maxRelease)
	if err != nil {
		return nil, err
	}
	text, signer, err := verifyRelease(trust, src, addr, data)
	if err != nil {
		return nil, err
	}
	r, err := parseRelease(apt.Redact(addr), text)
	if err != nil {
		return nil, err
	}
	r.Source, r.Signer = src, signer
	if !r.isSuite(src.Suite) {
		return nil, fault.Malformed(apt.Redact(addr), "is the release file of another suite than %q", src.Suite)
	}
	if !trust.AllowExpired && !r.validUntil.IsZero() && trust.Now().After(r.validUntil) {
		return nil, &fault.StaleError{URL: apt.Redact(addr), ValidUntil: r.validUntil}
	}
	return r, nil
}

func verifyRelease(trust Trust, src *apt.Source, addr string, data []byte) (text []byte, signer string, err error) {
	if trust.AllowUnsigned {
		if block, _ := clearsign.Decode(data); block != nil {
			return block.Plaintext, "", nil
		}
		return data, "", nil
	}
	keys, err := keysFor(trust, src)
	if err != nil {
		return nil, "", &fault.SignatureError{URL: apt.Redact(addr), Err: err}
	}
	text, signer, err = keys.verifyInline(data, &packet.Config{Time: trust.Now})
	if err != nil {
		return nil, "", &fault.SignatureError{URL: apt.Redact(addr), Keyrings: keys.files, Err: err}
	}
	return text, signer, nil
}

func parseRelease(what string, text []byte) (*Release, error) {
	st, err := control.Parse(what, text)
	if err != nil {
		return nil, err
	}
	r := &Release{
		origin:   st.Get("Origin"),
		names:    []string{st.Get("Suite"), st.Get("Codename")},
		byHash:   strings.EqualFold(st.Get("Acquire-By-Hash"), "yes"),
		allInAll: hasWord(st.Get("Architectures"), "all") && !hasWord(st.Get("No-Support-for-Architecture-all"), "Packages"),
		files:    map[string]pkgcache.Digest{},
	}
	if r.Date, err = releaseTime(what, st.Get("Date")); err != nil {
		return nil, err
	}
	if r.validUntil, err = releaseTime(what, st.Get("Valid-Until")); err != nil {
		return nil, err
	}
	for _, line := range strings.Split(st.Get("SHA256"), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 3 {
			return nil, fault.Malformed(what, "bad checksum line %.120q", line)
		}
		d, err := pkgcache.ParseDigest(words[0], words[1])
		if err != nil {
			return nil, fault.Malformed(what, "bad checksum line %.120q", line)
		}
		r.files[words[2]] = d
	}
	if len(r.files) == 0 {
		return nil, fault.Malformed(what, "has no SHA256 checksums")
	}
	return r, nil
}

// isSuite reports whether r is the release of a suite. It guards against a mirror that answers with another, validly signed,
// release.
func (r *Release) isSuite(suite string) bool {
	base := strings.TrimSuffix(suite, "/updates") // security suites before 2021
	for _, have := range r.names {
		if strings.TrimSuffix(have, "/updates") == base {
			return true
		}
	}
	return false
}

// releaseTime reads an RFC 5322 date in UTC; a missing date is the zero time.
func releaseTime(what, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := http.ParseTime(strings.Replace(s, "UTC", "GMT", 1))
	if err != nil {
		t, err = time.Parse("Mon, _2 Jan 2006 15:04:05 MST", s)
	}
	if err != nil {
		t, err = time.Parse(time.RFC1123Z, s)
	}
	if err != nil {
		return time.Time{}, fault.Malformed(what, "bad date %.60q", s)
	}
	return t.UTC(), nil
}

func hasWord(field, word string) bool {
	for _, w := range strings.Fields(field) {
		if w == word {
			return true
		}
	}
	return false
}

// FetchReleases returns the verified releases of all sources, the suite itself
// first. A source of another Origin than the suite's is left out: the suites of
// vendors often borrow the name of the distribution's, and their packages would
// win by version. Progress counts release files.
func FetchReleases(ctx context.Context, f *Fetcher, trust Trust, suite string, srcs []apt.Source, progress func(done, total int, suite string)) ([]*Release, error) {
	var all []*Release
	for i := range srcs {
		progress(i, len(srcs), srcs[i].Suite)
		r, err := fetchRelease(ctx, f, trust, &srcs[i])
		if err != nil {
			if srcs[i].File != "" {
				err = fmt.Errorf("use source of %s: %w", srcs[i].File, err)
			}
			return nil, err
		}
		all = append(all, r)
	}
	origin := all[0].origin
	hostID := apt.OSRelease(trust.HostRoot)["ID"]
	for _, r := range all {
		if strings.EqualFold(r.origin, hostID) && r.Source.Suite == suite {
			origin = r.origin
			break
		}
	}
	var out []*Release
	for _, r := range all {
		if r.origin == origin {
			out = append(out, r)
		}
	}
	progress(len(srcs), len(srcs), "")
	return out, nil
}

// Newest returns the date of the youngest release. Generated files carry it, so
// that the same archive state gives the same bytes.
func Newest(rels []*Release) time.Time {
	t := time.Unix(0, 0).UTC()
	for _, r := range rels {
		if r.Date.After(t) {
			t = r.Date
		}
	}
	return t
}
