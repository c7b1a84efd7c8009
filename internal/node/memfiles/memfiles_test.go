package memfiles

import (
	"os"
	"testing"

	"ramet.dev/ramet/api"
)

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFilesStayOpenWhileReferredTo(t *testing.T) {
	files, f := New(), tempFile(t)
	if err := files.Add("pool_0", f); err != nil {
		t.Fatal(err)
	}
	if err := files.Acquire([]string{"pool_0", "pool_1"}); api.CodeOf(err) != api.CodeInternal {
		t.Errorf("a file that is not known: %v", err)
	}
	if err := files.Acquire([]string{"pool_0"}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	files.Release("pool_0")
	open, err := files.Files([]string{"pool_0"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open[0].Stat(); err != nil {
		t.Errorf("one reference is left, and the file is closed: %v", err)
	}
	files.Release("pool_0")
	if _, err := open[0].Stat(); err == nil {
		t.Error("nobody refers to it, and the file is open")
	}
	if _, err := files.Files([]string{"pool_0"}); err == nil {
		t.Error("nobody refers to it, and the file is listed")
	}
}

func TestNameBelongsToOneFile(t *testing.T) {
	files, f := New(), tempFile(t)
	for _, want := range []api.Code{"", ""} {
		if err := files.Add("pool_0", f); api.CodeOf(err) != want {
			t.Error(err)
		}
	}
	if err := files.Add("pool_0", tempFile(t)); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("another file of that name: %v", err)
	}
}

func TestSizesSayWhatCountsWhere(t *testing.T) {
	files := New()
	snapshot := api.NewID(api.KindSnapshot)
	for _, name := range []string{"pool_0", "pool_0/files", snapshot + "/memory", snapshot + "/files"} {
		if err := files.Add(name, tempFile(t)); err != nil {
			t.Fatal(err)
		}
	}
	if got := files.MemorySizes(); len(got) != 1 {
		t.Errorf("memory: %v", got)
	}
	if got := files.Sizes(); len(got) != 2 {
		t.Errorf("files of sentries: %v", got)
	}
}
