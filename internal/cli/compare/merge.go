package compare

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

// MergeCommand returns the merge command.
func (g *Group) MergeCommand() *cobra.Command {
	var req api.MergeRequest
	var strategy string
	cmd := &cobra.Command{
		Use:   "merge INTO FROM…",
		Short: "Merge the file changes of others into a running sandbox",
		Long: `Merge the changes that others made to their files since the merge base into a running sandbox.

Text files are merged line by line. A path that both sides changed in different ways is a conflict. It is listed, and stays as it is in INTO unless --strategy resolves it. The exit code is 4 if conflicts are left.`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: g.CompleteSandboxes,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.From, req.Strategy = args[1:], api.MergeStrategy(strategy)
			r, err := c.Sandboxes.Merge(ctx, args[0], req)
			if err != nil {
				return err
			}
			if err := g.Show(r, func(w io.Writer) error { return writeMerge(w, r, req.From) }); err != nil {
				return err
			}
			if r.Unresolved() > 0 {
				return session.ExitError(api.CodeConflict.ExitCode())
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVar(&req.Paths, "path", nil, "only files at and below this path; may be repeated (default all but /tmp)")
	cmd.Flags().StringArrayVar(&req.Exclude, "exclude", nil, "leave out files and directories of this name, such as __pycache__ or '*.o'; may be repeated")
	cmd.Flags().StringVar(&strategy, "strategy", string(api.MergeLeave),
		"on conflicts: 'leave' the paths as they are, take 'ours' (INTO) or 'theirs' (the last FROM), or 'fail' and change nothing")
	values.CompleteValues(cmd, "strategy", string(api.MergeLeave), string(api.MergeOurs), string(api.MergeTheirs), string(api.MergeFail))
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "show what would be done and change nothing")
	return cmd
}

// mergeReasons are the explanations of conflicts.
var mergeReasons = map[string]string{
	"deleted":    "deleted on one side, changed on the other",
	"type":       "the sides have different types of file",
	"content":    "both sides changed the contents",
	"attributes": "both sides changed permissions, owner or attributes",
	"directory":  "one side deleted a directory in which the other has files",
}

// writeMerge prints one line for each changed path, as diff does, and the details of each conflict.
// from has the names of the sides that the user typed.
func writeMerge(w io.Writer, r *api.MergeResult, from []string) error {
	names := map[string]string{}
	for i, s := range r.Sides[:min(len(r.Sides), len(from))] {
		names[s.From] = from[i]
	}
	for _, c := range r.Applied {
		what := c.Type
		switch {
		case c.OldType != "":
			what = c.OldType + " → " + c.Type
		case c.Type == "file" && c.Kind == api.Modified && c.OldSize != c.Size:
			what = console.SizeChange(c.OldSize, c.Size)
		case c.Type == "file":
			what = console.ByteSize(c.Size)
		}
		if c.Merged {
			what += ", merged"
		}
		if _, err := fmt.Fprintf(w, "%s %s  (%s)\n", strings.ToUpper(string(c.Kind[:min(1, len(c.Kind))])), mergedPath(&c), what); err != nil {
			return err
		}
	}
	for i := range r.Conflicts {
		if err := writeConflict(w, &r.Conflicts[i], names); err != nil {
			return err
		}
	}
	return console.Line(mergeSummary(r))(w)
}

func mergedPath(c *api.MergeChange) string {
	return pathsOf(&api.Change{Path: c.Path, OldPath: c.OldPath})
}

func writeConflict(w io.Writer, c *api.MergeConflict, names map[string]string) error {
	who := names[c.From]
	if c.OursFrom != "" {
		who = names[c.OursFrom] + " and " + who
	}
	why := who + ": " + mergeReasons[c.Reason]
	if n, ok := noHunks[c.NoHunks]; ok {
		why += ", " + n
	}
	if c.Resolved != "" {
		why += "; decided for " + string(c.Resolved)
	}
	if _, err := fmt.Fprintf(w, "! %s  (%s)\n", console.PrintablePath(c.Path), why); err != nil {
		return err
	}
	if c.Resolved != "" {
		return nil
	}
	for _, v := range []struct {
		name string
		v    *api.MergeVersion
	}{{"base", c.Base}, {"ours", c.Ours}, {"theirs", c.Theirs}} {
		if err := console.Line(fmt.Sprintf("    %-7s %s", v.name, versionText(v.v)))(w); err != nil {
			return err
		}
	}
	for _, h := range c.Hunks {
		for _, part := range []struct{ mark, text string }{
			{"<<<<<<< ours", h.Ours.Text}, {"||||||| base", h.Base.Text}, {"=======", h.Theirs.Text}, {">>>>>>> theirs", ""},
		} {
			if err := console.Line("  " + part.mark)(w); err != nil {
				return err
			}
			for l := range strings.Lines(part.text) {
				if err := console.Line("  " + console.WithoutControls(strings.TrimSuffix(l, "\n"), "\t"))(w); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func versionText(v *api.MergeVersion) string {
	if v == nil {
		return "nothing"
	}
	s := v.Type
	switch v.Type {
	case "file":
		s = console.ByteSize(v.Size)
	case "symlink":
		s += " to " + console.PrintablePath(v.Target)
	}
	s += ", mode " + v.Mode + ", owner " + v.Owner
	if v.SHA256 != "" {
		s += ", sha256 " + v.SHA256[:min(12, len(v.SHA256))]
	}
	return s
}

func mergeSummary(r *api.MergeResult) string {
	changed, left := len(r.Applied), r.Unresolved()
	switch {
	case r.Strategy == api.MergeFail && left > 0:
		return console.Plural(left, "conflict", "conflicts") + ": nothing was changed"
	case changed == 0 && left == 0:
		return "nothing to merge"
	}
	paths := console.Plural(changed, "path", "paths")
	s := paths + " changed"
	if r.DryRun {
		s = paths + " would change"
	}
	if r.PauseMS > 0 {
		s += ", pause " + console.Millis(r.PauseMS)
	}
	if left > 0 {
		s += ", " + console.Plural(left, "conflict left as it was", "conflicts left as they were")
	}
	return s
}
