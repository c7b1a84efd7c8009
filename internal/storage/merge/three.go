package merge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/storage/textdiff"
)

// Reason is the reason of a conflict.
type Reason string

// The reasons. The first one that applies counts.
const (
	// Deleted: one side deleted the file that the other changed.
	Deleted Reason = "deleted"
	// Type: the sides made files of different types.
	Type Reason = "type"
	// Data: both changed the contents, the target of a link or the number of a device.
	Data Reason = "content"
	// Attributes: both changed permissions, owner or an extended attribute.
	Attributes Reason = "attributes"
	// Directory: one side removed a directory, and the other has files in it that the
	// first did not know of.
	Directory Reason = "directory"
)

// NoHunks is the reason why contents in conflict are not shown line by line.
type NoHunks string

// The reasons.
const (
	Binary   NoHunks = "binary"
	TooLarge NoHunks = "too_large"
)

// Conflict is a path that both sides changed in ways that cannot be combined.
type Conflict struct {
	Path string
	// From names the merged side. OursFrom names the earlier side that the file of ours
	// comes from, if there is one.
	From, OursFrom string
	Reason         Reason
	// Base, Ours and Theirs are nil where there is no file.
	Base, Ours, Theirs *File
	// Hunks are set if texts are in conflict, NoHunks if other contents are.
	Hunks   []Hunk
	NoHunks NoHunks
	// Resolved says that the strategy decided.
	Resolved bool
}

// Hunk is the part of a text that is in conflict. It does not keep the rest in memory.
type Hunk struct{ Base, Ours, Theirs Lines }

// Lines are consecutive lines of a text. At is the index of the first.
type Lines struct {
	At   int
	Text string
}

// decision is the decision about a path.
type decision struct {
	base, ours, theirs *File
	file               *File  // the result
	both               bool   // ours and theirs changed in different ways
	link               string // the path that the result is another name of, or ""
	conflict           *Conflict
}

// decide makes the decision about base, ours and theirs at a path. Of a conflict it sets only
// what the conflict is about; adopt sets the rest.
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

// disagree records a conflict about the whole path.
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

// pick merges a property. base is nil if there is no base.
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

// threeAttrs merges the attributes into out, and returns whether one is in conflict.
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

// threeXattrs merges extended attributes, and returns whether one is in conflict.
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

// threeData merges the contents into out. It returns the conflict if there is one; then out
// is as the strategy decides.
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

// threeTexts merges line by line. It returns nil if a file is no text.
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
