package snapfile

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

const (
	magic = "RAMETSNP"
	// version changes with every incompatible change of the format. Older
	// binaries refuse newer files.
	version = 4
	// PageSize is the unit of all file ranges, in bytes.
	PageSize = 4096
	// PagesOffset is where the page section begins.
	PagesOffset = PageSize

	// maxMeta bounds every section but pages, in bytes, so that a damaged
	// header cannot make a reader allocate without limit.
	maxMeta = 1 << 30
	// maxOffset is the largest offset of a memory file.
	maxOffset = math.MaxInt64 - PageSize
)

type section int

const (
	secPages section = iota
	secIndex
	secState
	secMeta
	secTable
	secGenerations
	secHeld
	secFiles
	secOutputs
	sections
)

// Range is a range of a memory file, in bytes.
type Range struct{ Start, End uint64 }

// Length returns the size of r in bytes.
func (r Range) Length() uint64 { return r.End - r.Start }

// Extent is a file range that lives in generation number Gen.
type Extent struct {
	Range
	Gen uint32
}

// Held is a file range on which freezes hold references.
type Held struct {
	Range
	Refs uint32
}

// Snapshot is the content of a snapshot file but for the pages themselves.
type Snapshot struct {
	// Copied are the ranges of the pages in the file, in their order.
	Copied []Range
	// Pages is the length of the page section, in bytes.
	Pages int64
	State []byte
	Meta  []byte
	Table []Extent
	// Generations are the names that Extent.Gen counts.
	Generations []string
	// Held are the references in Meta that freezes hold, not the sandbox. A child drops
	// them, because it does not have the freezes.
	Held []Held
	// Files says where the files are.
	Files Files
	// Outputs is the kept output of processes.
	Outputs []Output
}

// Files are a tree of package cowfs: its root, and in which generations its pages
// are.
type Files struct {
	Root     uint64        `json:"root"`
	Segments []FileSegment `json:"segments"`
}

// FileSegment says that pages [Start, End) are in a generation, each at its number
// times PageSize.
type FileSegment struct {
	Start uint64 `json:"start"`
	End   uint64 `json:"end"`
	Gen   uint32 `json:"gen"`
}

// WriteTo writes all but the page section, which must be in the file already,
// and the header last: a file that was not finished has no magic.
func (s *Snapshot) WriteTo(f io.WriterAt) (size int64, err error) {
	gens, err := json.Marshal(s.Generations)
	if err != nil {
		return 0, fmt.Errorf("encode generations: %w", err)
	}
	files, err := json.Marshal(s.Files)
	if err != nil {
		return 0, fmt.Errorf("encode files: %w", err)
	}
	header := make([]byte, PageSize)
	copy(header, magic)
	binary.LittleEndian.PutUint32(header[8:], version)
	binary.LittleEndian.PutUint32(header[12:], uint32(sections))
	put := func(sec section, off, length int64) {
		binary.LittleEndian.PutUint64(header[16+16*sec:], uint64(off))
		binary.LittleEndian.PutUint64(header[24+16*sec:], uint64(length))
	}
	put(secPages, PagesOffset, s.Pages)
	off := int64(PagesOffset) + s.Pages
	for _, sec := range []struct {
		section
		data []byte
	}{
		{secIndex, appendRanges(nil, s.Copied)},
		{secState, s.State},
		{secMeta, s.Meta},
		{secTable, appendExtents(nil, s.Table)},
		{secGenerations, gens},
		{secHeld, appendHeld(nil, s.Held)},
		{secFiles, files},
		{secOutputs, appendOutputs(nil, s.Outputs)},
	} {
		if _, err := f.WriteAt(sec.data, off); err != nil {
			return 0, fmt.Errorf("write snapshot section: %w", err)
		}
		put(sec.section, off, int64(len(sec.data)))
		off += int64(len(sec.data))
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		return 0, fmt.Errorf("write snapshot header: %w", err)
	}
	return off, nil
}

// Parse reads a snapshot from data, the whole file, and checks every offset,
// range and count. State, Meta and the data of Outputs point into data.
func Parse(data []byte) (*Snapshot, error) { return parseAs(data, nil) }

// foreign are the largest sizes, in bytes, of those sections of a state from another machine that take more memory once
// they are decoded than in the file.
var foreign = map[section]uint64{secTable: 64 << 20, secGenerations: 64 << 10, secHeld: 16 << 20, secFiles: 16 << 20, secOutputs: 64 << 20}

// ParseForeign is Parse for a file that another machine may have written: it refuses large sections before it decodes
// them.
func ParseForeign(data []byte) (*Snapshot, error) { return parseAs(data, foreign) }

func parseAs(data []byte, most map[section]uint64) (*Snapshot, error) {
	s, err := parse(data, most)
	if err != nil {
		return nil, fmt.Errorf("parse snapshot: %w", err)
	}
	return s, nil
}

func parse(data []byte, most map[section]uint64) (*Snapshot, error) {
	if len(data) < PageSize || string(data[:8]) != magic {
		return nil, fmt.Errorf("no snapshot file")
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v != version {
		return nil, fmt.Errorf("format version %d, not %d", v, version)
	}
	if n := binary.LittleEndian.Uint32(data[12:]); n != uint32(sections) {
		return nil, fmt.Errorf("%d sections, not %d", n, sections)
	}
	var secs [sections][]byte
	for i := range secs {
		off := binary.LittleEndian.Uint64(data[16+16*i:])
		length := binary.LittleEndian.Uint64(data[24+16*i:])
		if off < PageSize || off > uint64(len(data)) || length > uint64(len(data))-off || section(i) != secPages && length > maxMeta {
			return nil, fmt.Errorf("section %d is outside of the file", i)
		}
		if bound, ok := most[section(i)]; ok && length > bound {
			return nil, fmt.Errorf("section %d has %d bytes: at most %d are accepted", i, length, bound)
		}
		secs[i] = data[off : off+length]
	}
	s := &Snapshot{Pages: int64(len(secs[secPages])), State: secs[secState], Meta: secs[secMeta]}
	if off := binary.LittleEndian.Uint64(data[16:]); off != PagesOffset {
		return nil, fmt.Errorf("pages begin at %d", off)
	}
	if err := json.Unmarshal(secs[secGenerations], &s.Generations); err != nil {
		return nil, fmt.Errorf("generations: %w", err)
	}
	var err error
	if s.Copied, err = parseRanges(secs[secIndex], uint64(s.Pages)); err != nil {
		return nil, err
	}
	if s.Table, err = parseExtents(secs[secTable], len(s.Generations)); err != nil {
		return nil, err
	}
	if s.Held, err = parseHeld(secs[secHeld]); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(secs[secFiles], &s.Files); err != nil {
		return nil, fmt.Errorf("files: %w", err)
	}
	if s.Outputs, err = parseOutputs(secs[secOutputs]); err != nil {
		return nil, err
	}
	return s, s.Files.Check(len(s.Generations))
}

// maxPage is the largest number of a page, for offsets to be small enough.
const maxPage = maxOffset / PageSize

// Check returns an error unless f makes sense with so many generations.
func (f *Files) Check(gens int) error {
	end := uint64(1)
	for _, seg := range f.Segments {
		if seg.Start < end || seg.End <= seg.Start || seg.End > maxPage {
			return fmt.Errorf("bad segment of files %d-%d", seg.Start, seg.End)
		}
		if int64(seg.Gen) >= int64(gens) {
			return fmt.Errorf("segment of files %d-%d is in generation %d of %d", seg.Start, seg.End, seg.Gen, gens)
		}
		end = seg.End
	}
	if f.Root >= end {
		return fmt.Errorf("root of files %d is in no segment", f.Root)
	}
	return nil
}

const (
	rangeBytes  = 16
	extentBytes = 20
	// maxRefs bounds the references on one range.
	maxRefs = 1 << 24
)

func appendRanges(b []byte, rs []Range) []byte {
	for _, r := range rs {
		b = binary.LittleEndian.AppendUint64(b, r.Start)
		b = binary.LittleEndian.AppendUint64(b, r.End)
	}
	return b
}

func parseRanges(b []byte, pages uint64) ([]Range, error) {
	if len(b)%rangeBytes != 0 {
		return nil, fmt.Errorf("page index has %d bytes", len(b))
	}
	rs := make([]Range, 0, len(b)/rangeBytes)
	var total, end uint64
	for ; len(b) > 0; b = b[rangeBytes:] {
		r := Range{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
		if err := r.check(end); err != nil {
			return nil, err
		}
		if r.Length() > pages-total {
			return nil, fmt.Errorf("page index has more than %d bytes", pages)
		}
		total += r.Length()
		end = r.End
		rs = append(rs, r)
	}
	if total != pages {
		return nil, fmt.Errorf("page index has %d of %d bytes", total, pages)
	}
	return rs, nil
}

func appendExtents(b []byte, es []Extent) []byte {
	for _, e := range es {
		b = appendRanges(b, []Range{e.Range})
		b = binary.LittleEndian.AppendUint32(b, e.Gen)
	}
	return b
}

func parseExtents(b []byte, gens int) ([]Extent, error) {
	if len(b)%extentBytes != 0 {
		return nil, fmt.Errorf("extent table has %d bytes", len(b))
	}
	es := make([]Extent, 0, len(b)/extentBytes)
	end := uint64(0)
	for ; len(b) > 0; b = b[extentBytes:] {
		e := Extent{Range{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, binary.LittleEndian.Uint32(b[16:])}
		if err := e.check(end); err != nil {
			return nil, err
		}
		if int64(e.Gen) >= int64(gens) {
			return nil, fmt.Errorf("extent %#x-%#x is in generation %d of %d", e.Start, e.End, e.Gen, gens)
		}
		end = e.End
		es = append(es, e)
	}
	return es, nil
}

func appendHeld(b []byte, hs []Held) []byte {
	for _, h := range hs {
		b = appendExtents(b, []Extent{{h.Range, h.Refs}})
	}
	return b
}

func parseHeld(b []byte) ([]Held, error) {
	es, err := parseExtents(b, maxRefs)
	if err != nil {
		return nil, fmt.Errorf("held ranges: %w", err)
	}
	hs := make([]Held, len(es))
	for i, e := range es {
		if e.Gen == 0 {
			return nil, fmt.Errorf("held ranges: %#x-%#x has no reference", e.Start, e.End)
		}
		hs[i] = Held{e.Range, e.Gen}
	}
	return hs, nil
}

// check refuses ranges that are empty, not aligned, too large or begin before end, which is
// the end of the range before it.
func (r Range) check(end uint64) error {
	if r.Start < end || r.Start >= r.End || r.End > maxOffset || r.Start%PageSize != 0 || r.End%PageSize != 0 {
		return fmt.Errorf("bad range %#x-%#x", r.Start, r.End)
	}
	return nil
}
