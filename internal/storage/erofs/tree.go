package erofs

import (
	"slices"
	"strings"
)

const (
	// maxSymlinks bounds the symbolic links followed for one path, as Linux does.
	maxSymlinks = 40
	// maxDepth bounds nested directories. Deeper ones could not be named by a
	// path of MaxPathLen; symbolic links could otherwise build them.
	maxDepth = MaxPathLen / 2
)

// Tree is a file system without its contents. Entries may come in any order: missing parents
// are made (root's, mode 0755) and take their attributes when they arrive, hard links may
// precede their target, and later entries replace earlier ones.
//
// A symbolic link in the directory part of a path is followed within the tree: the entry gets
// the place that an extraction under chroot would give it.
//
// A Tree is not safe for concurrent use.
type Tree struct {
	root    *Node
	layer   int
	created int
	pending []pendingLink
}

// NewTree returns a tree that holds only the root directory.
func NewTree() *Tree {
	return &Tree{root: newDirectory(), layer: 1}
}

func newDirectory() *Node {
	return &Node{Kind: Directory, Mode: 0o755, children: map[string]dirent{}}
}

// Created returns the number of entries that were ever made, implied parents included. It never
// falls, so a limit on it bounds the work that an archive can cause.
func (t *Tree) Created() int { return t.created }

// Empty returns whether the root directory has no entries.
func (t *Tree) Empty() bool { return len(t.root.children) == 0 }

// Put stores n at path. A directory put on a directory keeps its children; any other earlier
// entry is replaced with all files below. The tree copies a directory, and keeps n itself
// otherwise: a node that is put at two paths makes a hard link. Errors are *EntryError.
func (t *Tree) Put(path string, n *Node) error {
	names, err := splitPath(path)
	if err != nil {
		return err
	}
	if reason := n.validate(); reason != "" {
		return &EntryError{path, reason}
	}
	if len(names) == 0 {
		if n.Kind != Directory {
			return &EntryError{path, "the root must be a directory"}
		}
		t.root.setAttributes(n)
		return nil
	}
	dir, err := t.makeParent(path, names)
	if err != nil {
		return err
	}
	name := names[len(names)-1]
	if n.Kind == Directory {
		if old, ok := dir.children[name]; ok && old.node.Kind == Directory {
			old.node.setAttributes(n)
			dir.children[name] = dirent{old.node, t.layer}
			t.created++
			return nil
		}
		attributes := n
		n = newDirectory()
		n.setAttributes(attributes)
	}
	t.insert(dir, name, n)
	return nil
}

// EnsureDirectory makes the directory at path and those above it, where they are missing (root's,
// mode 0755). It follows symbolic links and replaces nothing. Errors are *EntryError.
func (t *Tree) EnsureDirectory(path string) error {
	names, err := splitPath(path)
	if err != nil {
		return err
	}
	for i := range names {
		dir, reason := t.walk(names[:i+1], false)
		if reason == "" && dir == nil && t.lookup(names[:i+1]) != nil {
			reason = "it leads through a file or a broken link"
		}
		if reason != "" {
			return &EntryError{path, reason}
		}
		if dir == nil {
			break // nothing is there, nor below
		}
	}
	_, reason := t.walk(names, true)
	if reason != "" {
		return &EntryError{path, reason}
	}
	return nil
}

// Lookup returns the node at path, or nil if there is none. Only the directory
// part of path may lead through symbolic links.
func (t *Tree) Lookup(path string) *Node {
	names, err := splitPath(path)
	if err != nil {
		return nil
	}
	return t.lookup(names)
}

func (t *Tree) lookup(names []string) *Node {
	if len(names) == 0 {
		return t.root
	}
	dir, reason := t.walk(names[:len(names)-1], false)
	if dir == nil || reason != "" {
		return nil
	}
	return dir.children[names[len(names)-1]].node
}

func (t *Tree) insert(dir *Node, name string, n *Node) {
	dir.children[name] = dirent{n, t.layer}
	t.created++
}

func (t *Tree) makeParent(path string, names []string) (*Node, error) {
	dir, reason := t.walk(names[:len(names)-1], true)
	if reason != "" {
		return nil, &EntryError{path, reason}
	}
	return dir, nil
}

// walk returns the directory that names lead to, following symbolic links. If create is set,
// missing directories are made and replace files of lower layers. The reason says why there is
// no such directory; without create a missing one is (nil, "").
func (t *Tree) walk(names []string, create bool) (dir *Node, reason string) {
	above := make([]*Node, 1, len(names)+1) // the directories from the root down
	above[0] = t.root
	todo := names
	hops := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		dir = above[len(above)-1]
		switch name {
		case "", ".":
			continue
		case "..": // of a symbolic link; stays in the root as under chroot
			above = above[:max(1, len(above)-1)]
			continue
		}
		next := dir.children[name]
		switch {
		case next.node == nil, next.node.Kind != Directory && next.node.Kind != Symlink:
			if !create {
				return nil, ""
			}
			if next.node != nil && next.layer == t.layer {
				return nil, "a parent is not a directory"
			}
			if len(name) > MaxNameLen {
				return nil, "a symbolic link leads to a file name longer than 255 bytes"
			}
			next.node = newDirectory()
			t.insert(dir, name, next.node)
		case next.node.Kind == Symlink:
			if hops++; hops > maxSymlinks {
				return nil, "too many symbolic links"
			}
			if next.node.Target[0] == '/' {
				above = above[:1]
			}
			todo = slices.Concat(strings.Split(next.node.Target, "/"), todo)
			continue
		}
		if above = append(above, next.node); len(above) > maxDepth {
			return nil, "directories are nested too deep"
		}
	}
	return above[len(above)-1], ""
}

func (n *Node) setAttributes(from *Node) {
	n.Mode, n.UID, n.GID = from.Mode, from.UID, from.GID
	n.MtimeSec, n.MtimeNsec = from.MtimeSec, from.MtimeNsec
	n.Xattrs = from.Xattrs
}
