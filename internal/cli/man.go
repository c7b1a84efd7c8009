package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/console"
)

// manSection is the section of user commands.
const manSection = "1"

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write man pages of all commands to a directory", Args: cobra.ExactArgs(1),
		Long: "Write man pages of all commands to a directory, which is made if it does not exist: ramet.1, ramet-fork.1, ramet-image-build.1 and so on. The same version of ramet writes the same bytes.",
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := writeMan(cmd.Root(), args[0], a.Version.Version)
			if err != nil {
				return api.Errorf(api.CodeInvalid, "%w", err)
			}
			return a.Show(map[string]any{"dir": args[0], "pages": files}, console.Line(fmt.Sprintf("%s in %s", console.Count(int64(len(files)), "page"), console.Printable(args[0]))))
		},
	}
}

// writeMan writes a page for root and for each visible command below it, and returns the names of
// the files. It changes the texts of the commands.
func writeMan(root *cobra.Command, dir, version string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root.DisableAutoGenTag = true // the tag has the date
	commands := withChildren(root)
	escapeMarkdown(commands)
	escapeFlags(commands)
	var index strings.Builder
	for _, g := range root.Groups() {
		fmt.Fprintf(&index, "\n\n### %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, cmd := range visibleIn(root, g.ID) {
			fmt.Fprintf(&index, "\n**%s**\n: %s\n", cmd.Name(), cmd.Short)
		}
	}
	root.Long += "\n\n# COMMANDS" + index.String()
	var files []string
	for _, cmd := range commands {
		if cmd != root && !cmd.IsAvailableCommand() {
			continue
		}
		page, err := manPage(cmd, version)
		if err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + "." + manSection
		if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, nil
}

// manPage returns the page of a command. It has no date, so that the same version gives the same
// bytes.
func manPage(cmd *cobra.Command, version string) ([]byte, error) {
	var none time.Time
	header := &doc.GenManHeader{Section: manSection, Date: &none, Source: "ramet " + version, Manual: "Ramet"}
	var page bytes.Buffer
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return nil, err
	}
	return bytes.Replace(page.Bytes(), []byte(`"`+none.Format("Jan 2006")+`"`), []byte(`""`), 1), nil
}

// escapeMarkdown escapes the texts of commands, which the generator takes for Markdown.
func escapeMarkdown(commands []*cobra.Command) {
	for _, cmd := range commands {
		cmd.Short = escaped(cmd.Short)
		var long []string
		for _, text := range strings.Split(cmd.Long, "\n") {
			if strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t") {
				long = append(long, "    "+strings.TrimSpace(text)) // a code block
				continue
			}
			long = append(long, escaped(strings.TrimPrefix(text, "#### "))) // as cobra's own texts have it
		}
		cmd.Long = strings.Join(long, "\n")
	}
}

// escapeFlags escapes the texts of the options of commands.
func escapeFlags(commands []*cobra.Command) {
	done := map[*pflag.Flag]bool{} // commands share the global ones
	escape := func(f *pflag.Flag) {
		if !done[f] {
			f.Usage, done[f] = escaped(f.Usage), true
		}
	}
	for _, cmd := range commands {
		cmd.Flags().VisitAll(escape)
		cmd.PersistentFlags().VisitAll(escape)
	}
}

// escaped returns text with a backslash before each character that Markdown gives a meaning.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, `<`, `\<`, `>`, `\>`, `[`, `\[`, `]`, `\]`, "`", "\\`", `#`, `\#`).Replace(text)
}
