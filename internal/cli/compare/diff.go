package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
)

// DiffCommand returns the diff command.
func (g *Group) DiffCommand() *cobra.Command {
	var req api.DiffRequest
	cmd := &cobra.Command{
		Use:   "diff A B [PATH…]",
		Short: "Compare the files of two sandboxes or snapshots",
		Long: "Compare the files of two sandboxes or snapshots of one tree or image. A is the old state, B the new one. With PATH, only the files at and below it are compared. Without, all files are, except /tmp, /dev, /proc, /sys, host name and machine id.\n\n" +
			"Each line begins with A (added), D (deleted), M (modified) or R (renamed).",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: g.CompleteBoth,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Paths = args[2:]
			if slices.Contains(req.Paths, "") {
				return api.Errorf(api.CodeInvalid, "PATH is empty")
			}
			d, err := c.Sandboxes.Diff(ctx, args[0], args[1], req)
			if err != nil {
				return err
			}
			return g.Show(d, func(w io.Writer) error {
				if req.Stat && !req.Hunks {
					return errors.Join(writeStat(w, d), writeProcesses(w, d.Processes), writeVariables(w, d.Variables))
				}
				return errors.Join(writeDiff(w, d), writeProcesses(w, d.Processes), writeVariables(w, d.Variables))
			})
		}),
	}
	cmd.Flags().BoolVar(&req.Hunks, "hunks", false, "show unified diffs of text files")
	cmd.Flags().BoolVar(&req.Stat, "stat", false, "show the number of lines that differ")
	cmd.Flags().BoolVar(&req.Processes, "processes", false, "also compare the processes of two running sandboxes")
	cmd.Flags().BoolVar(&req.Variables, "variables", false, "also compare the variables of Python and Node contexts of two running sandboxes")
	return cmd
}

// noHunks are the reasons why the lines of a file are not shown.
var noHunks = map[api.NoHunks]string{
	api.NoHunksBinary:   "binary",
	api.NoHunksTooLarge: "too large to show",
	api.NoHunksLimit:    "too much to show",
}

// writeDiff prints one line for each changed path, as version control does: A, M, D or R.
func writeDiff(w io.Writer, d *api.Diff) error {
	if len(d.Changes)+len(d.Processes)+len(d.Variables) == 0 {
		return console.Line("no differences")(w)
	}
	for _, c := range d.Changes {
		letter := strings.ToUpper(string(c.Kind[:min(1, len(c.Kind))]))
		if _, err := fmt.Fprintf(w, "%s %s  (%s)\n", letter, pathsOf(&c), strings.Join(details(&c), ", ")); err != nil {
			return err
		}
		for hunk := range strings.Lines(c.Hunks) {
			if err := console.Line("  " + console.WithoutControls(strings.TrimSuffix(hunk, "\n"), "\t"))(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeProcesses prints one line for each process that differs.
func writeProcesses(w io.Writer, changes []api.ProcessChange) error {
	for _, c := range changes {
		what := console.Printable(c.Command)
		if c.Kind == api.Modified {
			what = console.Printable(c.OldCommand) + " → " + what
		}
		letter := strings.ToUpper(string(c.Kind[:min(1, len(c.Kind))]))
		if _, err := fmt.Fprintf(w, "%s process %d: %s\n", letter, c.PID, what); err != nil {
			return err
		}
	}
	return nil
}

// writeVariables prints one line for each variable that differs or may differ.
func writeVariables(w io.Writer, changes []api.VariableChange) error {
	for _, c := range changes {
		what := console.Printable(c.Repr)
		switch c.Kind {
		case api.Modified:
			what = console.Printable(c.OldRepr) + " → " + what
		case api.Undecided:
			what += "  (only a part was compared, which is the same)"
		}
		kind := console.Printable(c.Type)
		if c.OldType != "" {
			kind = console.Printable(c.OldType) + " → " + kind
		}
		letter := strings.ToUpper(string(c.Kind[:min(1, len(c.Kind))]))
		if _, err := fmt.Fprintf(w, "%s %s: %s  (%s, %s)  %s\n", letter, console.Printable(c.Context), console.Printable(c.Name), kind, console.ByteSize(c.Size), what); err != nil {
			return err
		}
	}
	return nil
}

// pathsOf returns the path of a change, and before it the old path of a renamed file.
func pathsOf(c *api.Change) string {
	if c.OldPath != "" {
		return console.PrintablePath(c.OldPath) + " → " + console.PrintablePath(c.Path)
	}
	return console.PrintablePath(c.Path)
}

// details returns the attributes of a change that are shown after its path.
func details(c *api.Change) []string {
	var all []string
	note := func(what, old, now string) {
		if old != "" && old != now {
			all = append(all, what+old+" → "+now)
		}
	}
	switch {
	case c.OldType != "":
		note("", c.OldType, c.Type)
	case c.Type != "file":
		all = append(all, c.Type)
	case c.OldSize != c.Size && (c.Kind == api.Modified || c.Kind == api.Renamed):
		all = append(all, console.SizeChange(c.OldSize, c.Size))
	default:
		all = append(all, console.ByteSize(c.Size))
	}
	note("mode ", c.OldMode, c.Mode)
	note("owner ", c.OldOwner, c.Owner)
	for _, x := range c.Xattrs {
		all = append(all, "attribute "+console.Printable(x))
	}
	if why, ok := noHunks[c.NoHunks]; ok {
		all = append(all, why)
	}
	return all
}

// maxBar is the length of the longest bar of writeStat.
const maxBar = 40

// writeStat prints the number of different lines of each file with a bar, and the sums.
func writeStat(w io.Writer, d *api.Diff) error {
	width, most, added, deleted := 0, 0, 0, 0
	for _, c := range d.Changes {
		width = max(width, utf8.RuneCountInString(pathsOf(&c)))
		most = max(most, c.Insertions+c.Deletions)
		added += c.Insertions
		deleted += c.Deletions
	}
	for _, c := range d.Changes {
		what := strings.Join(details(&c), ", ")
		if n := c.Insertions + c.Deletions; n > 0 {
			scale := func(n int) int { return (n*min(most, maxBar) + most - 1) / most }
			what = fmt.Sprintf("%*d %s%s", len(fmt.Sprint(most)), n, strings.Repeat("+", scale(c.Insertions)), strings.Repeat("-", scale(c.Deletions)))
		}
		p := pathsOf(&c)
		if _, err := fmt.Fprintf(w, " %s%s | %s\n", p, strings.Repeat(" ", width-utf8.RuneCountInString(p)), what); err != nil {
			return err
		}
	}
	return console.Line(fmt.Sprintf(" %s, %s, %s", console.Plural(len(d.Changes), "path differs", "paths differ"),
		console.Plural(added, "line is new", "lines are new"), console.Plural(deleted, "line is gone", "lines are gone")))(w)
}
