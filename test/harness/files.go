package harness

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// At refers to a file by its path.
func At(path string) api.FileRef { return api.FileRef{Path: path} }

// Put writes a file through the node.
func (n *Node) Put(ref string, req api.WriteRequest, contents string) *api.FileInfo {
	n.T.Helper()
	info, err := n.Machine.WriteFile(AsOwner, ref, req, strings.NewReader(contents))
	if err != nil {
		n.T.Fatalf("write %q: %v", req.Path, err)
	}
	return info
}

// Read reads a file through the node.
func (n *Node) Read(ref string, f api.FileRef) (string, error) {
	file, err := n.Machine.OpenFile(AsOwner, ref, f)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	return string(b), err
}

// MustRead checks what is in a file.
func (n *Node) MustRead(ref, path, want string) {
	n.T.Helper()
	if got, err := n.Read(ref, At(path)); err != nil || got != want {
		n.T.Errorf("%q has %q, not %q (%v)", path, got, want, err)
	}
}

// ChangeFile changes a file through the node.
func (n *Node) ChangeFile(ref string, c api.FileChange) error {
	_, err := n.Machine.ChangeFile(AsOwner, ref, c)
	return err
}

// TarOf packs entries. The contents of a file stand in its Uname.
func TarOf(t *testing.T, entries ...*tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		contents := h.Uname // of no use otherwise
		h.Uname = ""
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(contents))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, contents); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
