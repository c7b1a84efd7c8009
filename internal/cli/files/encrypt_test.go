package files

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"ramet.dev/ramet/api"
)

func TestEncryption(t *testing.T) {
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := strings.Repeat("memory", 1<<18)
	for _, to := range []string{mine.Recipient().String(), file("recipients", "# me\n"+mine.Recipient().String()+"\n")} {
		list, err := recipients([]string{to})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := encrypted(&out, list, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out.Bytes(), []byte("memory")) || !bytes.HasPrefix(out.Bytes(), []byte(ageIntro)) {
			t.Error("it is not encrypted")
		}
		plain, err := decrypted(bytes.NewReader(out.Bytes()), []string{file("key", mine.String()+"\n")})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(plain); err != nil || string(got) != text {
			t.Errorf("%d bytes came back: %v", len(got), err)
		}
		for _, identities := range [][]string{nil, {file("key", other.String())}, {file("key", "x")}, {"/no/such/file"}} {
			if _, err := decrypted(bytes.NewReader(out.Bytes()), identities); api.CodeOf(err) != api.CodeInvalid {
				t.Errorf("with %v: %v", identities, err)
			}
		}
		cut, err := decrypted(bytes.NewReader(out.Bytes()[:out.Len()-10]), []string{file("key", mine.String())})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(cut); err == nil {
			t.Error("a file that is cut off is whole")
		}
	}
	failed := errors.New("failed")
	if err := encrypted(io.Discard, nil, func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	plain, err := decrypted(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(plain); err != nil || string(got) != text {
		t.Errorf("a plain file is another: %v", err)
	}
	for _, bad := range []string{"", "age1x", "/no/such/file", file("recipients", "x")} {
		if _, err := recipients([]string{bad}); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
