package debian

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const maxRelease = 8 << 20

// digest is what signed metadata promises about a file.
type digest struct {
	sha256 string // lower-case hex
	size   int64
}

// release is a verified release file.
type release struct {
	src        *source
	origin     string
	names      []string // Suite and Codename
	date       time.Time
	validUntil time.Time
	byHash     bool
	allInAll   bool // Architecture: all packages have an index of their own
	signer     string
	files      map[string]digest
}

// fetchRelease fetches and verifies the release file of src.
func fetchRelease(ctx context.Context, f *fetcher, opts *Options, src *source) (*release, error) {
	addr := src.url("dists/" + src.suite + "/InRelease")
	data, err := f.get(ctx, addr, maxRelease)
	if err != nil {
		return nil, err
	}
	text, signer, err := verifyRelease(opts, src, addr, data)
	if err != nil {
		return nil, err
	}
	r, err := parseRelease(redact(addr), text)
	if err != nil {
		return nil, err
	}
	r.src, r.signer = src, signer
	if !r.isSuite(src.suite) {
		return nil, malformed(redact(addr), "is the release file of another suite than %q", src.suite)
	}
	tolerant := opts.AllowExpired || opts.conf.disabled("Acquire::Check-Valid-Until")
	if !tolerant && !r.validUntil.IsZero() && opts.now().After(r.validUntil) {
		return nil, &StaleError{URL: redact(addr), ValidUntil: r.validUntil}
	}
	return r, nil
}

func verifyRelease(opts *Options, src *source, addr string, data []byte) (text []byte, signer string, err error) {
	if opts.AllowUnsigned {
		if block, _ := clearsign.Decode(data); block != nil {
			return block.Plaintext, "", nil
		}
		return data, "", nil
	}
	keys, err := keysFor(opts, src)
	if err != nil {
		return nil, "", &SignatureError{URL: redact(addr), Err: err}
	}
	text, signer, err = keys.verifyInline(data, &packet.Config{Time: opts.now})
	if err != nil {
		return nil, "", &SignatureError{URL: redact(addr), Keyrings: keys.files, Err: err}
	}
	return text, signer, nil
}

func parseRelease(what string, text []byte) (*release, error) {
	st, err := parseStanza(what, text)
	if err != nil {
		return nil, err
	}
	r := &release{
		origin:   st.get("Origin"),
		names:    []string{st.get("Suite"), st.get("Codename")},
		byHash:   strings.EqualFold(st.get("Acquire-By-Hash"), "yes"),
		allInAll: hasWord(st.get("Architectures"), "all") && !hasWord(st.get("No-Support-for-Architecture-all"), "Packages"),
		files:    map[string]digest{},
	}
	if r.date, err = releaseTime(what, st.get("Date")); err != nil {
		return nil, err
	}
	if r.validUntil, err = releaseTime(what, st.get("Valid-Until")); err != nil {
		return nil, err
	}
	for _, line := range strings.Split(st.get("SHA256"), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 3 {
			return nil, malformed(what, "bad checksum line %.120q", line)
		}
		d, err := parseDigest(words[0], words[1])
		if err != nil {
			return nil, malformed(what, "bad checksum line %.120q", line)
		}
		r.files[words[2]] = d
	}
	if len(r.files) == 0 {
		return nil, malformed(what, "has no SHA256 checksums")
	}
	return r, nil
}

// isSuite guards against a mirror that answers with another, validly signed,
// release.
func (r *release) isSuite(suite string) bool {
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
		return time.Time{}, malformed(what, "bad date %.60q", s)
	}
	return t.UTC(), nil
}

func parseDigest(sum, size string) (digest, error) {
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != 32 {
		return digest{}, errors.New("not a SHA-256")
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return digest{}, errors.New("not a size")
	}
	return digest{sha256: hex.EncodeToString(raw), size: n}, nil
}

func hasWord(field, word string) bool {
	for _, w := range strings.Fields(field) {
		if w == word {
			return true
		}
	}
	return false
}

// fetchReleases returns the verified releases of all sources, the suite itself
// first. A source of another Origin than the suite's is left out: the suites of
// vendors often borrow the name of the distribution's, and their packages would
// win by version.
func fetchReleases(ctx context.Context, f *fetcher, opts *Options, srcs []source) ([]*release, error) {
	var all []*release
	for i := range srcs {
		opts.report(PhaseRelease, int64(i), int64(len(srcs)), srcs[i].suite)
		r, err := fetchRelease(ctx, f, opts, &srcs[i])
		if err != nil {
			if srcs[i].file != "" {
				err = fmt.Errorf("use source of %s: %w", srcs[i].file, err)
			}
			return nil, err
		}
		all = append(all, r)
	}
	origin := all[0].origin
	hostID := readOSRelease(opts.HostRoot)["ID"]
	for _, r := range all {
		if strings.EqualFold(r.origin, hostID) && r.src.suite == opts.Suite {
			origin = r.origin
			break
		}
	}
	var out []*release
	for _, r := range all {
		if r.origin == origin {
			out = append(out, r)
		}
	}
	opts.report(PhaseRelease, int64(len(srcs)), int64(len(srcs)), "")
	return out, nil
}

// newest returns the date of the youngest release; generated files carry it, so
// that the same archive state gives the same bytes.
func newest(rels []*release) time.Time {
	t := time.Unix(0, 0).UTC()
	for _, r := range rels {
		if r.date.After(t) {
			t = r.date
		}
	}
	return t
}
