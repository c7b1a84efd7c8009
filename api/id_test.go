package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNewIDIsWellFormedAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range []Kind{KindSandbox, KindSnapshot, KindImage} {
		for range 100 {
			id := NewID(k)
			if !IsID(k, id) {
				t.Fatalf("IsID(%q, %q) = false", k, id)
			}
			if seen[id] {
				t.Fatalf("id %q came twice", id)
			}
			seen[id] = true
		}
	}
}

func TestIsIDRefuses(t *testing.T) {
	good := NewID(KindSandbox)
	for _, s := range []string{
		"", "sbx_", good + "a", good[:len(good)-1], strings.ToUpper(good), "snap" + good[3:],
		"sbx_../../../../etc/x", good + "\n", "sbx_aaaaaaaaaaaaaaa/", "sbx_aaaaaaaaaaaaaaa1",
	} {
		if IsID(KindSandbox, s) {
			t.Errorf("IsID accepts %q", s)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "base": true, "py-3.12_x": true, strings.Repeat("a", 63): true,
		"": false, ".": false, "..": false, "a..b": false, "-a": false, "a-": false, "a/b": false,
		"sbx_a": false, "snap_1": false, "img_": false, "sbx": true, "A": false, "ä": false, "a\x00": false, strings.Repeat("a", 64): false, "a b": false,
	} {
		err := ValidName("name", name)
		if (err == nil) != ok {
			t.Errorf("ValidName(%q) = %v, want ok=%v", name, err, ok)
		}
		if err != nil && CodeOf(err) != CodeInvalid {
			t.Errorf("ValidName(%q) has code %q", name, CodeOf(err))
		}
	}
}

func TestCodeOfFindsTheOutermostCode(t *testing.T) {
	notFound := NotFound("sandbox", "x")
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, ""},
		{notFound, CodeNotFound},
		{fmt.Errorf("fork x: %w", notFound), CodeNotFound},
		{Errorf(CodeConflict, "delete: %w", notFound), CodeConflict},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), CodeTimeout},
		{context.Canceled, CodeCanceled},
		{errors.New("x"), CodeInternal},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

func TestAsErrorKeepsTheWholeText(t *testing.T) {
	err := fmt.Errorf("create: %w", Invalid("name", "bad"))
	got := AsError(err)
	if got.Code != CodeInvalid || got.Field != "name" || !strings.Contains(got.Detail, "create: ") {
		t.Errorf("AsError = %+v", got)
	}
}

func TestChildNames(t *testing.T) {
	wantField(t, "none", "", ValidChildNames(3, nil))
	wantField(t, "one each", "", ValidChildNames(3, []string{"a", "", "a"}))
	wantField(t, "too few", "names", ValidChildNames(3, []string{"a"}))
	wantField(t, "no name", "names", ValidChildNames(2, []string{"a", "Not A Name"}))
	wantField(t, "two without a name", "", DistinctNames("names", []string{"a", "", "b", ""}))
	wantField(t, "one twice", "names", DistinctNames("names", []string{"a", "b", "a"}))
}
