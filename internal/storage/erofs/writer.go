package erofs

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// File is a file that an image is written to, such as an *os.File. It must be empty.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
}

// Options are the parameters of an image that its tree does not hold.
type Options struct {
	// UUID identifies the image in its superblock. It is part of the image's bytes and so
	// of its digest.
	UUID [16]byte
}

// Summary describes a finished image.
type Summary struct {
	Size   int64 // in bytes, a multiple of BlockSize
	Inodes int
}

// Writer writes an image. It is not safe for concurrent use.
type Writer struct {
	file     File
	data     *dataArea
	finished bool
}

// NewWriter returns a Writer of an image in f. The caller syncs and closes f.
func NewWriter(f File) *Writer {
	return &Writer{file: f, data: newDataArea(f)}
}

// Store copies r to the image until EOF and returns its place, for Node.Data. Contents that the
// image already has are stored once. An error of r is returned as it is, and the image is then
// as before.
func (w *Writer) Store(r io.Reader) (Extent, error) {
	return w.data.add(r)
}

// Finish writes t's metadata and the superblock, which completes the image. t must not be used
// any more. The error is an *EntryError if a hard link has no target.
func (w *Writer) Finish(t *Tree, opt Options) (Summary, error) {
	if w.finished {
		return Summary{}, errors.New("image is already finished")
	}
	w.finished = true
	if err := t.resolveLinks(); err != nil {
		return Summary{}, err
	}
	l := newLayout(t.root)
	if err := w.placeData(l.files); err != nil {
		return Summary{}, err
	}
	dirBase := w.data.end() / BlockSize
	metaBase := dirBase + int64(l.dirBlocks)
	blocks := metaBase + (int64(l.slots)*slotSize+BlockSize-1)/BlockSize
	if blocks > maxBlocks {
		return Summary{}, ErrTooLarge
	}
	// Cutting first drops the bytes that compaction left behind; extending then gives zeros
	// for all bytes that are not written.
	for _, size := range []int64{w.data.end(), blocks * BlockSize} {
		if err := w.file.Truncate(size); err != nil {
			return Summary{}, fmt.Errorf("size image: %w", err)
		}
	}
	if err := w.writeDirectories(l, dirBase); err != nil {
		return Summary{}, fmt.Errorf("write image directories: %w", err)
	}
	if err := w.writeInodes(l, dirBase, metaBase); err != nil {
		return Summary{}, fmt.Errorf("write image metadata: %w", err)
	}
	sb := superblock{
		rootNid:  uint16(t.root.slot),
		inodes:   uint64(len(l.nodes)),
		blocks:   uint32(blocks),
		metaAddr: uint32(metaBase),
		uuid:     opt.UUID,
	}
	if _, err := w.file.WriteAt(sb.encode(), 0); err != nil {
		return Summary{}, fmt.Errorf("write image superblock: %w", err)
	}
	return Summary{Size: blocks * BlockSize, Inodes: len(l.nodes)}, nil
}

// placeData brings the data area to its final form.
func (w *Writer) placeData(files []*Node) error {
	if err := w.data.flush(); err != nil {
		return err
	}
	for _, n := range files {
		if n.Data.start < BlockSize || n.Data.start+n.Data.size > w.data.end() {
			return errors.New("contents of a file belong to another image")
		}
	}
	// Zeros at the end are not in the file yet, and compaction reads them.
	if err := w.file.Truncate(w.data.end()); err != nil {
		return fmt.Errorf("size image data: %w", err)
	}
	byStart := slices.Clone(files)
	slices.SortFunc(byStart, func(a, b *Node) int { return cmp.Compare(a.Data.start, b.Data.start) })
	return w.data.compact(byStart)
}

// writeDirectories writes the parts of directories and symbolic links that do not fit behind
// their inodes.
func (w *Writer) writeDirectories(l *layout, base int64) error {
	out := bufio.NewWriterSize(io.NewOffsetWriter(w.file, base*BlockSize), bufferSize)
	for _, n := range l.nodes {
		var lead []byte
		switch n.Kind {
		case Directory:
			lead = n.directory()
			lead = lead[:len(lead)-n.inlineTail(n.dirSize)]
		case Symlink:
			lead = []byte(n.Target[:len(n.Target)-n.inlineTail(uint64(len(n.Target)))])
		}
		out.Write(lead)
		out.Write(zeros[:-len(lead)&(BlockSize-1)])
	}
	return out.Flush() // bufio keeps the first error of the writes above
}

func (w *Writer) writeInodes(l *layout, dirBase, metaBase int64) error {
	out := bufio.NewWriterSize(io.NewOffsetWriter(w.file, metaBase*BlockSize), bufferSize)
	pos := uint64(0)
	inode := make([]byte, BlockSize)
	for _, n := range l.nodes {
		b, inline := encodeInode(inode, n, dirBase)
		out.Write(zeros[:n.slot*slotSize-pos])
		out.Write(b)
		out.Write(n.xattrs)
		out.Write(inline)
		pos = n.slot*slotSize + uint64(len(b)+len(n.xattrs)+len(inline))
	}
	return out.Flush()
}

// encodeInode returns the inode of n, in buf, and the data that follow it and its
// extended attributes.
func encodeInode(buf []byte, n *Node, dirBase int64) (inode, inline []byte) {
	inode = buf[:inodeSize]
	clear(inode)
	switch n.Kind {
	case Directory:
		inline = n.directory()
	case Symlink:
		inline = []byte(n.Target)
	case CharDevice, BlockDevice:
		putInode(inode, n, dataPlain, 0, deviceNumber(n.Major, n.Minor))
		return inode, nil
	case Regular:
		putInode(inode, n, dataPlain, uint64(n.Data.size), uint32(n.Data.start/BlockSize))
		return inode, nil
	default:
		putInode(inode, n, dataPlain, 0, 0)
		return inode, nil
	}
	size := uint64(len(inline))
	tail := n.inlineTail(size)
	layout := uint16(dataPlain)
	if tail > 0 {
		layout = dataInline
	}
	addr := uint32(0)
	if size > uint64(tail) {
		addr = uint32(dirBase) + n.dirAddr
	}
	putInode(inode, n, layout, size, addr)
	return inode, inline[len(inline)-tail:]
}
