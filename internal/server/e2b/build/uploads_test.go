package build

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// TestUploadsCountForTheirTenant as they arrive, and not for others.
func TestUploadsCountForTheirTenant(t *testing.T) {
	u := newUploads(t.TempDir())
	u.maxFile, u.most = 8, 10
	at := time.Unix(1000, 0)
	u.now = func() time.Time { return at }
	hash := func(c string) string { return strings.Repeat(c, 64) }
	keep := func(tenant, h, data string, want api.Code) {
		t.Helper()
		if err := u.keep(tenant, hash(h), strings.NewReader(data)); api.CodeOf(err) != want {
			t.Errorf("%s of %s: %v, want %q", data, tenant, err, want)
		}
	}
	keep("acme", "a", "1234567", "")
	keep("acme", "b", "1234", api.CodeLimit)
	keep("other", "b", "12345678", "")
	keep("other", "c", "123456789", api.CodeLimit) // of one file
	keep("acme", "b", "123", "")
	keep("acme", "b", "12", api.CodeLimit) // beside the one that it replaces
	keep("acme", "a", "", "")              // in place of seven bytes
	keep("acme", "c", "1234567", "")

	// What arrives counts, and no more once it broke off.
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- u.keep("third", hash("a"), from) }()
	if _, err := to.Write([]byte("123456")); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Write(nil); err != nil { // the first part has been counted
		t.Fatal(err)
	}
	keep("third", "b", "12345", api.CodeLimit)
	to.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-done; api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a body that broke off: %v", err)
	}
	keep("third", "b", "12345678", "")

	at = at.Add(keepFiles + time.Second)
	if ok, err := u.has("third", hash("b")); ok || err != nil {
		t.Errorf("an old upload is there: %t, %v", ok, err)
	}
	keep("third", "c", "12345678", "")
	if list, err := os.ReadDir(u.dir); err != nil || len(list) != 1 {
		t.Errorf("%d files are left, %v", len(list), err)
	}
}
