package cowfs

import (
	"fmt"
	"slices"

	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// linksOfImage has the entries of an image's directories and files with several names, by
// inode. The image itself only leads from names to inodes. Making it takes a walk of the
// whole image, so it is made when it is first needed.
type linksOfImage map[Ino][]Link

func newLinksOfImage(image *erofs.Reader) (linksOfImage, error) {
	links := linksOfImage{}
	root := Ino(image.Root())
	for todo := []Ino{root}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		in, err := image.Inode(uint64(dir))
		if err != nil {
			return nil, err
		}
		var bad error
		err = image.Entries(&in, "", func(name string, _ uint8, nid uint64) bool {
			var child erofs.Inode
			if child, bad = image.Inode(nid); bad != nil {
				return false
			}
			isDir := child.Mode&TypeMask == TypeDir
			if isDir && (links[Ino(nid)] != nil || Ino(nid) == root) {
				bad = fmt.Errorf("%w: directory %d of the image has two names", pages.ErrCorrupt, nid)
				return false
			}
			if isDir {
				todo = append(todo, Ino(nid))
			}
			if isDir || child.Nlink > 1 {
				links[Ino(nid)] = append(links[Ino(nid)], Link{dir, name})
			}
			return true
		})
		if err := firstError(bad, err); err != nil {
			return nil, err
		}
	}
	return links, nil
}

// ImageLinks returns those entries of a directory, or of a file with several names, that the
// image has and that are still there.
func (f *Files) ImageLinks(ino Ino) ([]Link, error) {
	if f.image == nil || !ino.OfImage() {
		return nil, nil
	}
	if f.links == nil {
		links, err := newLinksOfImage(f.image)
		if err != nil {
			return nil, err
		}
		f.links = links
	}
	return f.verify(ino, slices.Clone(f.links[ino]))
}

// ManyNames returns whether the image has several names for a file.
func (f *Files) ManyNames(ino Ino) bool {
	if f.image == nil || !ino.OfImage() {
		return false
	}
	in, err := f.image.Inode(uint64(ino))
	return err == nil && in.Nlink > 1 && in.Mode&TypeMask != TypeDir
}
