package merge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/storage/textdiff"
)

// Reason says why a path is in conflict.
type Reason string

// The reasons. If several apply, the first counts.
const (
	// Deleted: one side deleted what the other changed.
	Deleted Reason = "deleted"
	// Type: the sides made files of different types.
	Type Reason = "type"
	// Data: both changed the contents, the target of a link or the number of a device.
	Data Reason = "content"
	// Attributes: both changed permissions, owner or an extended attribute.
	Attributes Reason = "attributes"
	// Directory: a directory is gone on one side, and the other has something in
	// it that the first did not know of.
	Directory Reason = "directory"
)

// NoHunks says why contents in conflict are not shown line by line.
type NoHunks string

// The reasons.
const (
	Binary   NoHunks = "binary"
	TooLarge NoHunks = "too_large"
)

// Conflict is a path on whose new state the two sides do not agree.
type Conflict struct {
	Path string
	// From names the side that was merged. OursFrom names the one that brought what
	// ours has, if it was merged before.
	From, OursFrom string
	Reason         Reason
	// Base, Ours and Theirs are nil where there is nothing.
	Base, Ours, Theirs *File
	// Hunks are set for texts, else NoHunks if it is about contents.
	Hunks   []Hunk
	NoHunks NoHunks
	// Resolved says that the strategy decided.
	Resolved bool
}

// Hunk is a part of a text that is in conflict. It does not keep the rest in memory.
type Hunk struct{ Base, Ours, Theirs Lines }

// Lines are some of a text, At the index of the first.
type Lines struct {
	At   int
	Text string
}

// decision is about one path.
type decision struct {
	base, ours, theirs *File
	file               *File  // what will be there
	both               bool   // ours and theirs have changed, and in different ways
	link               string // of which path it is another name, if it is known
	conflict           *Conflict
}

// decide makes a decision about what base, ours and theirs have at one path.
// Nothing is said of the conflict but what it is about.
func (p *Plan) decide(ctx context.Context, d *decision) error {
	d.file = d.ours
	for _, pair := range []struct {
		a, b, take *File
	}{{d.ours, d.theirs, d.ours}, {d.base, d.ours, d.theirs}, {d.base, d.theirs, d.ours}} {
		equal, err := same(ctx, pair.a, pair.b)
		if equal || err != nil {
			d.file = pair.take
			return err
		}
	}
	d.both = true
	switch {
	case d.ours == nil || d.theirs == nil:
		d.disagree(p.strategy, Deleted)
	case d.ours.kind() != d.theirs.kind():
		d.disagree(p.strategy, Type)
	default:
		return p.threeWay(ctx, d)
	}
	return nil
}

// disagree notes a conflict about the whole of a path.
func (d *decision) disagree(s Strategy, why Reason) {
	d.conflict = &Conflict{Reason: why, Resolved: s.decides()}
	d.file = d.ours
	if s == Theirs {
		d.file = d.theirs
	}
}

// threeWay decides about two files of one type.
func (p *Plan) threeWay(ctx context.Context, d *decision) error {
	base := d.base
	if base != nil && base.kind() != d.ours.kind() {
		base = nil
	}
	out := *d.ours
	content, err := p.threeData(ctx, &out, base, d)
	if err != nil {
		return err
	}
	attrs := threeAttrs(&out, base, d.ours, d.theirs, p.strategy)
	switch {
	case content != nil:
		d.conflict = content
	case attrs:
		d.conflict = &Conflict{Reason: Attributes}
	default:
		d.file = &out
		return nil
	}
	if d.conflict.Resolved = p.strategy.decides(); d.conflict.Resolved {
		d.file = &out
	}
	return nil
}

// pick decides about one property. base is nil if there is none.
func pick[T comparable](base *T, ours, theirs T, s Strategy) (out T, conflict bool) {
	switch {
	case ours == theirs || base != nil && *base == theirs:
		return ours, false
	case base != nil && *base == ours:
		return theirs, false
	}
	if s == Theirs {
		return theirs, true
	}
	return ours, true
}

// threeAttrs decides about the attributes of out. It says whether any is in
// conflict.
func threeAttrs(out, base, ours, theirs *File, s Strategy) bool {
	var bad, any bool
	of := func(field func(*File) uint32) (v uint32) {
		var b *uint32
		if base != nil {
			v := field(base)
			b = &v
		}
		v, bad = pick(b, field(ours), field(theirs), s)
		any = any || bad
		return v
	}
	out.Mode = of(func(f *File) uint32 { return f.Mode })
	out.UID = of(func(f *File) uint32 { return f.UID })
	out.GID = of(func(f *File) uint32 { return f.GID })
	out.Xattrs, bad = threeXattrs(base, ours, theirs, s)
	return any || bad
}

// xattr is an extended attribute that may be missing.
type xattr struct {
	value string
	ok    bool
}

func threeXattrs(base, ours, theirs *File, s Strategy) (out map[string]string, conflict bool) {
	get := func(f *File, name string) xattr {
		v, ok := f.Xattrs[name]
		return xattr{v, ok}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(ours.Xattrs)), maps.Keys(theirs.Xattrs))
	out = map[string]string{}
	for _, name := range names {
		var b *xattr
		if base != nil {
			v := get(base, name)
			b = &v
		}
		x, bad := pick(b, get(ours, name), get(theirs, name), s)
		if x.ok {
			out[name] = x.value
		}
		conflict = conflict || bad
	}
	return out, conflict
}

// threeData decides about what is in out. It returns the conflict if there is one;
// out then is what the strategy says.
func (p *Plan) threeData(ctx context.Context, out, base *File, d *decision) (*Conflict, error) {
	takeTheirs := func() {
		t := d.theirs
		out.Size, out.Content, out.Target, out.Major, out.Minor = t.Size, t.Content, t.Target, t.Major, t.Minor
		out.Inode, out.Links = t.Inode, t.Links
	}
	equal, err := sameData(ctx, d.ours, d.theirs)
	if equal || err != nil {
		return nil, err
	}
	if base != nil {
		if equal, err := sameData(ctx, base, d.theirs); equal || err != nil {
			return nil, err
		}
		if equal, err := sameData(ctx, base, d.ours); equal || err != nil {
			takeTheirs()
			return nil, err
		}
	}
	c := &Conflict{Reason: Data}
	if d.ours.kind() == typeReg {
		merged, err := p.threeTexts(ctx, c, base, d)
		if err != nil {
			return nil, err
		}
		if merged != nil {
			out.Content, out.Size = merged, int64(len(merged))
			if len(c.Hunks) == 0 {
				return nil, nil
			}
			return c, nil
		}
	}
	if p.strategy == Theirs {
		takeTheirs()
	}
	return c, nil
}

// threeTexts merges line by line. It returns nil if these are no texts.
func (p *Plan) threeTexts(ctx context.Context, c *Conflict, base *File, d *decision) (Text, error) {
	var texts [3][]byte
	for i, f := range []*File{base, d.ours, d.theirs} {
		if f == nil {
			continue
		}
		b, err := f.Content.Bytes(ctx)
		switch {
		case errors.Is(err, ErrTooLarge):
			c.NoHunks = TooLarge
			return nil, nil
		case err != nil:
			return nil, err
		case !textdiff.IsText(b):
			c.NoHunks = Binary
			return nil, nil
		}
		texts[i] = b
	}
	chunks, err := textdiff.Merge(ctx, texts[0], texts[1], texts[2])
	if err != nil {
		return nil, err
	}
	c.Hunks = hunksOf(chunks)
	prefer := textdiff.Ours
	if p.strategy == Theirs {
		prefer = textdiff.Theirs
	}
	merged := Text(textdiff.Text(chunks, prefer))
	if merged == nil {
		merged = Text{}
	}
	return merged, nil
}

// hunksOf returns the conflicts of a merge.
func hunksOf(chunks []textdiff.Chunk) []Hunk {
	lines := func(at int, all []string) Lines {
		return Lines{At: at, Text: strings.Clone(strings.Join(all, ""))} // one line joined is a part of the text
	}
	var hunks []Hunk
	for _, c := range chunks {
		if c.Conflict {
			hunks = append(hunks, Hunk{lines(c.BaseAt, c.Base), lines(c.OursAt, c.Ours), lines(c.TheirsAt, c.Theirs)})
		}
	}
	return hunks
}
