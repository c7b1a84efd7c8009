package harness

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
)

var dirs atomic.Int32

// NewDir makes a directory with a short path.
func NewDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(base, strconv.Itoa(int(dirs.Add(1))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// RandomHex returns a name that nothing else has.
func RandomHex() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
