package secrets

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

const text = "sk-very-secret-0123456789"

var forLLM = Binding{Names: []string{"llm.example.com"}, Header: "Authorization", Methods: []string{"POST"}, Paths: []string{"/v1/*"}}

func open(t *testing.T, fs hostfs.FS, dir string) *Store {
	t.Helper()
	s, err := Open(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func set(t *testing.T, s *Store, tenant, name, value string) {
	t.Helper()
	if err := s.Set(tenant, name, NewValue(value), forLLM, nil); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, hostfs.OS, dir)
	set(t, s, "a", "LLM_KEY", text)
	set(t, s, "a", "ANOTHER", "x")
	set(t, s, "b", "LLM_KEY", "b's")

	s = open(t, hostfs.OS, dir) // the next daemon
	info, v, err := s.Get("a", "LLM_KEY")
	if err != nil || v.Reveal() != text || !cmp.Equal(info.Binding, forLLM) {
		t.Errorf("it is %q %+v, %v", v.Reveal(), info, err)
	}
	list, err := s.List("a")
	if err != nil || len(list) != 2 || list[0].Name != "ANOTHER" || list[1].Name != "LLM_KEY" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	set(t, s, "a", "LLM_KEY", "new")
	again, v, err := s.Get("a", "LLM_KEY")
	if err != nil || v.Reveal() != "new" || !again.Created.Equal(info.Created) || again.Updated.Before(info.Updated) {
		t.Errorf("it is %q %+v, %v", v.Reveal(), again, err)
	}
	if err := s.Remove("a", "LLM_KEY"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get("a", "LLM_KEY"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a removed secret: %v", err)
	}
	if err := s.Remove("a", "LLM_KEY"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a removed secret is removed: %v", err)
	}
	if _, v, err := s.Get("b", "LLM_KEY"); err != nil || v.Reveal() != "b's" {
		t.Errorf("another tenant's is %q, %v", v.Reveal(), err)
	}
}

// TestOnDisk looks at what others could read.
func TestOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	s := open(t, hostfs.OS, dir)
	set(t, s, "tenant-a", "LLM_KEY", text)
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{text, "LLM_KEY", "tenant-a", "llm.example.com"} {
			if bytes.Contains(b, []byte(word)) {
				t.Errorf("%s has %q", e.Name(), word)
			}
		}
		if st, err := e.Info(); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), st.Mode(), err)
		}
	}
	if !slices.Equal(names, []string{identityFile, secretsFile}) {
		t.Errorf("there are %q", names)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", st.Mode(), err)
	}
}

func TestOpenRefuses(t *testing.T) {
	identity := "not an identity: " + text
	for name, spoil := range map[string]func(dir string) error{
		"identity is gone":     func(dir string) error { return os.Remove(filepath.Join(dir, identityFile)) },
		"identity is no text":  func(dir string) error { return os.WriteFile(filepath.Join(dir, identityFile), []byte(identity), 0o600) },
		"identity is public":   func(dir string) error { return os.Chmod(filepath.Join(dir, identityFile), 0o644) },
		"secrets are public":   func(dir string) error { return os.Chmod(filepath.Join(dir, secretsFile), 0o640) },
		"secrets were changed": func(dir string) error { return flip(filepath.Join(dir, secretsFile)) },
		"secrets were cut":     func(dir string) error { return os.Truncate(filepath.Join(dir, secretsFile), 100) },
		"identity of others": func(dir string) error {
			other := filepath.Join(dir, "..", "other")
			if _, err := Open(hostfs.OS, other); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, identityFile), filepath.Join(dir, identityFile))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "secrets")
			set(t, open(t, hostfs.OS, dir), "a", "LLM_KEY", text)
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Open(hostfs.OS, dir)
			if err == nil {
				t.Fatal("it is opened")
			}
			if strings.Contains(err.Error(), text) {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
}

// flip changes the last byte of a file.
func flip(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)-1] ^= 1
	return os.WriteFile(path, b, 0o600)
}

func TestSetRefuses(t *testing.T) {
	s := open(t, hostfs.OS, filepath.Join(t.TempDir(), "secrets"))
	for _, c := range []struct {
		field, name, value string
		edit               func(*Binding)
	}{
		{"name", "", text, nil},
		{"name", "a b", text, nil},
		{"name", "1a", text, nil},
		{"value", "A", "", nil},
		{"value", "A", "a\nb", nil},
		{"value", "A", "a\x00", nil},
		{"value", "A", " a", nil},
		{"value", "A", strings.Repeat("a", MaxValue+1), nil},
		{"binding", "A", text, func(b *Binding) { b.Names = nil }},
		{"names", "A", text, func(b *Binding) { b.Names = []string{"*.example.com"} }},
		{"names", "A", text, func(b *Binding) { b.Names = []string{"example.com:443"} }},
		{"names", "A", text, func(b *Binding) { b.Names = []string{""} }},
		{"header", "A", text, func(b *Binding) { b.Header = "" }},
		{"header", "A", text, func(b *Binding) { b.Header = "X\r\nY" }},
		{"header", "A", text, func(b *Binding) { b.Header = "host" }},
		{"header", "A", text, func(b *Binding) { b.Header = "transfer-encoding" }},
		{"methods", "A", text, func(b *Binding) { b.Methods = []string{"get"} }},
		{"paths", "A", text, func(b *Binding) { b.Paths = []string{"v1"} }},
	} {
		b := forLLM
		if c.edit != nil {
			c.edit(&b)
		}
		err := s.Set("a", c.name, NewValue(c.value), b, nil)
		if api.CodeOf(err) != api.CodeInvalid || !strings.HasPrefix(err.Error(), c.field+": ") {
			t.Errorf("%s %q %+v: %v", c.name, c.value, b, err)
		}
		if err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("the error has the value: %v", err)
		}
	}
	b := forLLM
	b.Names = []string{"LLM.Example.COM."}
	if err := s.Set("a", "A", NewValue(text), b, nil); err != nil {
		t.Fatal(err)
	}
	if info, _, err := s.Get("a", "A"); err != nil || info.Binding.Names[0] != "llm.example.com" {
		t.Errorf("the names are %q, %v", info.Binding.Names, err)
	}
}

// TestFaults makes each operation on the host's files fail: the secrets are the old ones or
// the new ones, and nothing else is left.
func TestFaults(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		dir := filepath.Join(t.TempDir(), "secrets")
		s := open(t, c.FS, dir)
		set(t, s, "a", "A", "old")
		err := c.Do(t, func() error { return s.Set("a", "A", NewValue("new"), forLLM, nil) }, nil)
		_, v, getErr := open(t, hostfs.OS, dir).Get("a", "A")
		if got := v.Reveal(); getErr != nil || got != "old" && got != "new" || err == nil && got != "new" {
			t.Errorf("after %v it is %q, %v", err, got, getErr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 && c.Failed.Op != faultfs.Remove {
			t.Errorf("there are %v, %v", entries, err)
		}
	})
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		dir := filepath.Join(t.TempDir(), "secrets")
		_ = c.Do(t, func() error {
			_, err := Open(c.FS, dir)
			return err
		}, nil)
		set(t, open(t, hostfs.OS, dir), "a", "A", "later")
	})
}

func TestSeal(t *testing.T) {
	s := open(t, hostfs.OS, filepath.Join(t.TempDir(), "secrets"))
	sealed, err := s.Seal([]byte(text))
	if err != nil || bytes.Contains(sealed, []byte(text)) {
		t.Fatalf("it is %q, %v", sealed, err)
	}
	if plain, err := s.Unseal(sealed); err != nil || string(plain) != text {
		t.Errorf("it is %q, %v", plain, err)
	}
	if _, err := s.Unseal([]byte("x")); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("what was not sealed: %v", err)
	}
	other := open(t, hostfs.OS, filepath.Join(t.TempDir(), "secrets"))
	if _, err := other.Unseal(sealed); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("what another one sealed: %v", err)
	}
}

// TestValueIsNotPrinted prints a value in every way that there is.
func TestValueIsNotPrinted(t *testing.T) {
	v := NewValue(text)
	type holder struct {
		hidden  Value
		Shown   Value
		Pointer *Value
	}
	h := holder{v, v, &v}
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T %v"} {
		printed = append(printed, fmt.Sprintf(verb, v), fmt.Sprintf(verb, &v), fmt.Sprintf(verb, h), fmt.Sprintf(verb, &h), fmt.Sprintf(verb, []Value{v}), fmt.Sprintf(verb, map[string]Value{"a": v}))
	}
	j, err := json.Marshal(map[string]any{"a": v, "b": h})
	if err != nil {
		t.Fatal(err)
	}
	x, err := xml.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "h", h)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "h", h)
	printed = append(printed, string(j), string(x), log.String(), fmt.Errorf("failed: %v", v).Error())
	for _, p := range printed {
		if strings.Contains(p, text) || strings.Contains(p, fmt.Sprintf("%x", text)) || strings.Contains(p, fmt.Sprint([]byte(text))) {
			t.Errorf("it prints as %s", p)
		}
	}
}

func TestClear(t *testing.T) {
	v := NewValue(text)
	b, other := *v.text(), v
	v.Clear()
	if other.Reveal() != "" || !other.IsZero() || !bytes.Equal(b, make([]byte, len(text))) {
		t.Errorf("it is %q in memory, and %q to a copy", b, other.Reveal())
	}
	var none Value
	none.Clear()
	if !none.IsZero() || none.Reveal() != "" {
		t.Error("the zero value has a text")
	}
}

func TestPlaceholder(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		p := NewPlaceholder()
		if !IsPlaceholder(p) || seen[p] {
			t.Fatalf("%q is a placeholder: %t, seen: %t", p, IsPlaceholder(p), seen[p])
		}
		seen[p] = true
	}
	for _, bad := range []string{"", PlaceholderPrefix, PlaceholderPrefix + strings.Repeat("a", 31), PlaceholderPrefix + strings.Repeat("A", 32), PlaceholderPrefix + strings.Repeat("a", 32) + "\n"} {
		if IsPlaceholder(bad) {
			t.Errorf("%q is a placeholder", bad)
		}
	}
}
