package launch

import "testing"

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
