package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
)

func flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.String("listen", "", "")
	f.String("e2b", "", "")
	f.Lookup("e2b").NoOptDefVal = "127.0.0.1:3000"
	f.StringArray("trust", nil, "")
	f.Int("most", 4, "")
	f.Bool("background", false, "")
	_ = f.MarkHidden("background")
	return f
}

func fileOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestApply(t *testing.T) {
	f := flags()
	if err := f.Parse([]string{"--listen", ":1"}); err != nil {
		t.Fatal(err)
	}
	all, err := Apply(f, fileOf(t, "listen = ':2'\ne2b = true\ntrust = ['a', 'b']\nmost = 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range all {
		got = append(got, s.Name+"="+s.Value+" "+string(s.Source))
	}
	if want := "e2b=127.0.0.1:3000 file, listen=:1 flag, most=7 file, trust=a, b file"; strings.Join(got, ", ") != want {
		t.Errorf("the settings are %v", got)
	}
	if all, err := Apply(flags(), filepath.Join(t.TempDir(), "none.toml")); err != nil || len(all) != 4 || all[0].Source != Default {
		t.Errorf("without a file: %v, %v", all, err)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"lissen = ':1'":                 "no such setting",
		"background = true":             "no such setting",
		"most = 'x'":                    "most",
		"most = 1.5":                    "it is not a text",
		"listen = ['a']":                "one value, not a list",
		"trust = [1]":                   "1 is not a text",
		"a = 1\nlisten =":               "line 2",
		"[listen]\nx = 1":               "it is not a text",
		strings.Repeat("#", MaxBytes+1): "at most",
	} {
		if _, err := Apply(flags(), fileOf(t, text)); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add("listen = ':2'\ne2b = true\ntrust = ['a', 'b']\nmost = 7\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = Apply(flags(), fileOf(t, text))
	})
}
