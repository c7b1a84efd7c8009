package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wholeRoot returns all commands, those that are made elsewhere included.
func wholeRoot() *cobra.Command {
	hook := &Hook{}
	a := newApp(Deps{Version: Version{Version: "v1"}, Doctor: hook, Demo: hook, Bench: hook}, Stdio{})
	return a.rootCommand()
}

// documented returns root and the commands that users see, that for help included.
func documented(root *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(withChildren(root), func(cmd *cobra.Command) bool {
		return cmd != root && !cmd.IsAvailableCommand() && cmd.Name() != "help"
	})
}

// TestHelpPages: each command says what it does in one line, has examples and a page that fits a
// terminal, and is in a group if it is a first word.
func TestHelpPages(t *testing.T) {
	root := wholeRoot()
	for _, cmd := range documented(root) {
		path := cmd.CommandPath()
		if cmd.Short == "" || utf8.RuneCountInString(cmd.Short) > 66 || strings.ContainsAny(cmd.Short, "\n.;") && !strings.Contains(cmd.Short, "; its ") {
			t.Errorf("%s: its short description is not one short sentence: %q", path, cmd.Short)
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", path)
		}
		if cmd.Parent() == root && cmd.GroupID == "" {
			t.Errorf("%s is in no group", path)
		}
		var page bytes.Buffer
		writeHelp(&page, cmd)
		for text := range strings.Lines(page.String()) {
			if utf8.RuneCountInString(strings.TrimSuffix(text, "\n")) > helpWidth {
				t.Errorf("%s: a line of its page is too long: %q", path, text)
			}
		}
		if usage := usageOf(cmd); strings.Count(usage, "\n") > 2 || slices.ContainsFunc(strings.Split(usage, "\n"), func(l string) bool { return len(l) > helpWidth }) {
			t.Errorf("%s: the usage that errors show is long: %q", path, usage)
		}
	}
	commands := map[string]bool{}
	for _, cmd := range withChildren(root) {
		commands[strings.TrimPrefix(cmd.CommandPath(), "ramet ")] = true
	}
	for path := range examples() {
		if !commands[path] {
			t.Errorf("there are examples of %q, which is no command", path)
		}
	}
}

// TestExamplesAreUnderstood parses each line of each example as the command would.
func TestExamplesAreUnderstood(t *testing.T) {
	words := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	for _, shown := range documented(wholeRoot()) {
		for line := range strings.Lines(shown.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "    #")
			var args []string
			for _, word := range words.FindAllString(line, -1) {
				if word == "|" || word == "<" || word == ">" {
					break // the shell's
				}
				args = append(args, strings.Trim(word, `'"`))
			}
			if len(args) == 0 || args[0] != "ramet" {
				t.Errorf("%s: %q does not begin with ramet", shown.CommandPath(), line)
				continue
			}
			cmd, rest, err := wholeRoot().Find(args[1:])
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if errors.Is(err, pflag.ErrHelp) {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: %q: %v", shown.CommandPath(), line, err)
			}
		}
	}
}

// TestManPages: each command has a page, with what its help page has, and the same bytes each time.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) map[string]string {
		pages := map[string]string{}
		at := filepath.Join(dir, name)
		files, err := writeMan(wholeRoot(), at, "v1")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(at, file))
			if err != nil {
				t.Fatal(err)
			}
			pages[file] = string(text)
		}
		return pages
	}
	pages, again := write("one"), write("two")
	for _, cmd := range documented(wholeRoot()) {
		if cmd.Name() == "help" {
			continue
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		page := pages[name+".1"]
		for _, part := range []string{`"1" "" "ramet v1" "Ramet"`, ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXAMPLE\n.EX\n  ramet "} {
			if !strings.Contains(page, part) {
				t.Errorf("the page of %s lacks %q", name, part)
			}
		}
		if page != again[name+".1"] {
			t.Errorf("the page of %s is another one each time", name)
		}
	}
	for _, part := range []string{"Fork, compare, merge", "\\fBrollback\\fP\n", "\\fBramet-fork(1)\\fP"} {
		if !strings.Contains(pages["ramet.1"], part) {
			t.Errorf("ramet.1 lacks %q", part)
		}
	}
	if page := pages["ramet-merge.1"]; !strings.Contains(page, "__pycache__") {
		t.Error("underscores of an option's text are taken for Markdown")
	}
}

// TestSuggestions: a word of another tool, or one that is mistyped, leads to one command.
func TestSuggestions(t *testing.T) {
	for word, want := range map[string]string{
		"list": "ls", "delete": "rm", "describe": "inspect", "clone": "fork", "checkpoint": "snapshot", "undo": "rollback", "forkk": "fork", "images": "image",
	} {
		if got := wholeRoot().SuggestionsFor(word); !slices.Equal(got, []string{want}) {
			t.Errorf("%s suggests %v, want %s", word, got, want)
		}
	}
}
