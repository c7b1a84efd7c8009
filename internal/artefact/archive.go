package artefact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strings"

	"ramet.dev/ramet/api"
)

const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	blobsDir   = "blobs/sha256/"
	layoutText = `{"imageLayoutVersion":"1.0.0"}`
	// maxEntries bounds the files of an archive.
	maxEntries = 4 * maxLayers
)

// Spool is an empty file for the blobs of an archive that is read.
type Spool interface {
	io.ReaderAt
	io.Writer
}

// ArchiveWriter writes a layout as a tar.
type ArchiveWriter struct{ tar *tar.Writer }

// NewArchiveWriter begins the archive of a manifest: what a reader needs to judge the
// snapshot comes first. The signature may be empty.
func NewArchiveWriter(w io.Writer, manifest, config []byte, signature string) (*ArchiveWriter, error) {
	a := &ArchiveWriter{tar.NewWriter(w)}
	named := Describe(manifest)
	if signature != "" {
		named.Annotations = map[string]string{SignatureKey: signature}
	}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": indexesType,
		"manifests": []Descriptor{named},
	})
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{layoutFile, []byte(layoutText)}, {indexFile, index}, {blobPath(Digest(manifest)), manifest}, {blobPath(Digest(config)), config}} {
		if err := a.add(f.name, int64(len(f.text)), bytes.NewReader(f.text)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func blobPath(digest string) string { return blobsDir + strings.TrimPrefix(digest, "sha256:") }

// Add writes a blob.
func (a *ArchiveWriter) Add(d Descriptor, r io.Reader) error {
	return a.add(blobPath(d.Digest), d.Size, r)
}

func (a *ArchiveWriter) add(name string, size int64, r io.Reader) error {
	if err := a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	_, err := io.Copy(a.tar, r)
	return err
}

// Close ends the archive.
func (a *ArchiveWriter) Close() error { return a.tar.Close() }

// Head is what is known of a snapshot before its large blobs.
type Head struct {
	Digest string // of the manifest, which stands for the whole snapshot
	// ConfigBytes is the configuration as it travels.
	ConfigBytes []byte
	Config      *Config
	Manifest    *Manifest
	Blobs       *Blobs
	// Signatures are of the manifest, perhaps: see Trusted.
	Signatures []string
}

// NewHead checks a manifest and a configuration.
func NewHead(manifest, config []byte) (*Head, error) {
	m, err := ParseManifest(manifest)
	if err != nil {
		return nil, err
	}
	if m.Config.Digest != Digest(config) || m.Config.Size != int64(len(config)) {
		return nil, corrupt("the configuration of the snapshot does not match its digest")
	}
	c, err := ParseConfig(config)
	if err != nil {
		return nil, err
	}
	b, err := m.Blobs(c)
	if err != nil {
		return nil, err
	}
	return &Head{Digest: Digest(manifest), ConfigBytes: config, Config: c, Manifest: m, Blobs: b}, nil
}

// Archive is an archive that has been read. Its blobs are in a spool, and match their digests.
type Archive struct {
	Head  *Head
	spool Spool
	end   int64
	blobs map[string]spooled
}

// spooled is where a blob is in the spool.
type spooled struct{ offset, size int64 }

func (a *Archive) section(f spooled) *io.SectionReader {
	return io.NewSectionReader(a.spool, f.offset, f.size)
}

// ReadOptions are the parameters of ReadArchive.
type ReadOptions struct {
	// Spool is the caller's, and used as long as the archive is.
	Spool Spool
	// Judge is called when the snapshot is known, before its large blobs are read
	// from archives that ArchiveWriter has written. It returns the blobs to skip.
	Judge func(*Head) (skip map[string]bool, err error)
}

// ReadArchive reads an archive, whose files may be in any order.
func ReadArchive(ctx context.Context, r io.Reader, opt ReadOptions) (*Archive, error) {
	a := &archiveReader{Archive: Archive{spool: opt.Spool, blobs: map[string]spooled{}}, judge: opt.Judge}
	source := &reader{ctx: ctx, r: r}
	in := tar.NewReader(source)
	for n := 0; ; n++ {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err == nil && n >= maxEntries {
			err = hostile("the archive has more than %d files", maxEntries)
		}
		if err == nil {
			err = a.entry(h, in)
		}
		if err != nil {
			return nil, readError(source, err)
		}
	}
	// What comes after the end mark is read, so that a client can send all of it.
	if _, err := io.Copy(io.Discard, io.LimitReader(source, maxTail)); err != nil {
		return nil, readError(source, err)
	}
	if err := a.complete(); err != nil {
		return nil, err
	}
	return &a.Archive, nil
}

// maxTail bounds the padding after an archive.
const maxTail = 1 << 20

// readError gives an error of the archive, not of the connection, a code.
func readError(source *reader, err error) error {
	var classed *api.Error
	switch {
	case source.err != nil:
		return source.err
	case errors.As(err, &classed):
		return err
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrInsecurePath), errors.Is(err, tar.ErrFieldTooLong):
		return corrupt("this is no archive of a snapshot, or it is cut off")
	}
	return err
}

type archiveReader struct {
	Archive
	judge    func(*Head) (map[string]bool, error)
	manifest string // its digest, once index.json has been read
	signed   string
	raw      []byte // the manifest, once it has been read
	parsed   *Manifest
	skip     map[string]bool
}

// entry takes a file of the archive.
func (a *archiveReader) entry(h *tar.Header, r io.Reader) error {
	name := path.Clean("/" + h.Name)[1:]
	for record := range h.PAXRecords { // a few bytes would become as many zeros as they say
		if strings.HasPrefix(record, "GNU.sparse.") {
			return hostile("the archive has %q with holes", cut(name))
		}
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil
	case tar.TypeReg:
	default:
		return hostile("the archive has %q, which is not a regular file", cut(name))
	}
	digest, isBlob := strings.CutPrefix(name, blobsDir)
	switch {
	case name == layoutFile:
		return nil
	case name == indexFile:
		text, err := document(h, r)
		if err != nil {
			return err
		}
		return a.index(text)
	case !isBlob:
		return nil // other programs add files of their own, such as manifest.json
	}
	if digest = "sha256:" + digest; !digestForm.MatchString(digest) {
		return corrupt("the archive has a blob with the invalid digest %q", cut(name))
	}
	return a.blob(digest, h, r)
}

// document reads a small file.
func document(h *tar.Header, r io.Reader) ([]byte, error) {
	if h.Size > maxDocument {
		return nil, hostile("%q of the archive has %d bytes: %d are allowed", cut(h.Name), h.Size, maxDocument)
	}
	return io.ReadAll(io.LimitReader(r, maxDocument))
}

// index reads which manifest the archive is of.
func (a *archiveReader) index(text []byte) error {
	var list struct {
		SchemaVersion int          `json:"schemaVersion"`
		Manifests     []Descriptor `json:"manifests"`
	}
	version := Version
	if err := decode(text, &list, &version); err != nil {
		return err
	}
	if a.manifest != "" || len(list.Manifests) != 1 || list.Manifests[0].check(maxDocument) != nil {
		return corrupt("the archive must have one snapshot, and has %d", len(list.Manifests))
	}
	a.manifest, a.signed = list.Manifests[0].Digest, list.Manifests[0].Annotations[SignatureKey]
	return a.advance()
}

// blob takes a blob: into memory if it is a document, else into a spool.
func (a *archiveReader) blob(digest string, h *tar.Header, r io.Reader) error {
	if _, twice := a.blobs[digest]; twice {
		return corrupt("the archive has blob %s twice", digest)
	}
	if a.skip[digest] || a.Head != nil && !a.Head.has(digest) {
		return nil
	}
	if h.Size > MaxBlobBytes {
		return hostile("blob %s has %d bytes: %d are allowed", digest, h.Size, int64(MaxBlobBytes))
	}
	hash := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(a.spool, hash), struct{ io.Reader }{r}, make([]byte, FrameBytes))
	if err != nil {
		return err
	}
	a.blobs[digest] = spooled{a.Archive.end, n}
	a.Archive.end += n
	if digestOf(hash.Sum(nil)) != digest {
		return corrupt("blob %s does not match its digest", digest)
	}
	return a.advance()
}

// has reports whether the snapshot has a blob that this version reads.
func (h *Head) has(digest string) bool {
	if h.Manifest.Config.Digest == digest || h.Digest == digest || h.Blobs.State.Digest == digest || h.Blobs.Engine != nil && h.Blobs.Engine.Digest == digest {
		return true
	}
	for _, p := range h.Blobs.Pages {
		if p.Frames.Digest == digest || p.Index.Digest == digest {
			return true
		}
	}
	return false
}

// advance reads the manifest and the configuration once they are there.
func (a *archiveReader) advance() error {
	if a.Head != nil || a.manifest == "" {
		return nil
	}
	if a.parsed == nil {
		text, err := a.text(a.manifest)
		if text == nil || err != nil {
			return err
		}
		if a.parsed, err = ParseManifest(text); err != nil {
			return err
		}
		a.raw = text
	}
	text, err := a.text(a.parsed.Config.Digest)
	if text == nil || err != nil {
		return err
	}
	if a.Head, err = NewHead(a.raw, text); err != nil {
		return err
	}
	if a.signed != "" {
		a.Head.Signatures = []string{a.signed}
	}
	a.skip, err = a.judge(a.Head)
	return err
}

// text returns a document that has arrived, or nil.
func (a *archiveReader) text(digest string) ([]byte, error) {
	f, ok := a.blobs[digest]
	if !ok {
		return nil, nil
	}
	if f.size > maxDocument {
		return nil, hostile("document %s has %d bytes: %d are allowed", digest, f.size, maxDocument)
	}
	b := make([]byte, f.size)
	_, err := io.ReadFull(a.section(f), b)
	return b, err
}

// complete checks that nothing is missing.
func (a *archiveReader) complete() error {
	if a.Head == nil {
		return corrupt("the archive has no snapshot in it, or is cut off")
	}
	need := []Descriptor{a.Head.Blobs.State}
	for _, p := range a.Head.Blobs.Pages {
		need = append(need, p.Frames, p.Index)
	}
	if e := a.Head.Blobs.Engine; e != nil {
		need = append(need, *e)
	}
	for _, d := range need {
		if a.skip[d.Digest] {
			continue
		}
		if f, ok := a.blobs[d.Digest]; !ok {
			return corrupt("the archive lacks blob %s", d.Digest)
		} else if f.size != d.Size {
			return corrupt("blob %s has %d bytes, not %d", d.Digest, f.size, d.Size)
		}
	}
	return nil
}

// Open returns the contents of a blob.
func (a *Archive) Open(_ context.Context, d Descriptor) (io.ReadCloser, error) {
	f, ok := a.blobs[d.Digest]
	if !ok {
		return nil, corrupt("the archive lacks blob %s", d.Digest)
	}
	return io.NopCloser(a.section(f)), nil
}
