package launch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFixSize(t *testing.T) {
	f, err := NewFile("test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	if err := FixSize(f); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, 100} {
		if err := f.Truncate(size); err == nil {
			t.Errorf("the file was truncated to %d bytes", size)
		}
	}
}

func TestReadEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if _, err := readEnd(path, 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	for content, want := range map[string]string{"": "", "abc": "abc", "abcd": "abcd", "abcdefg": "defg"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readEnd(path, 4); err != nil || string(got) != want {
			t.Errorf("the end of %q is %q, %v, not %q", content, got, err, want)
		}
	}
}
