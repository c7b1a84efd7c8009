package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

func (a *app) diffCommand() *cobra.Command {
	var req sandbox.DiffRequest
	cmd := &cobra.Command{
		Use:               "diff A B [PATH…] [--hunks]",
		Short:             "Compare the files of two sandboxes of one tree",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeSandboxes,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Paths = args[2:]
			d, err := c.Diff(ctx, args[0], args[1], req)
			if err != nil {
				return err
			}
			return a.show(d, func(w io.Writer) error { return writeDiff(w, d) })
		}),
	}
	cmd.Flags().BoolVar(&req.Hunks, "hunks", false, "with unified diffs of text files")
	return cmd
}

// noHunks are the reasons for which a file is shown without its unified diff.
var noHunks = map[sandbox.NoHunks]string{
	sandbox.NoHunksBinary:   "no text",
	sandbox.NoHunksTooLarge: "too large to show",
	sandbox.NoHunksChanged:  "changed meanwhile",
	sandbox.NoHunksLimit:    "too much to show",
}

// writeDiff prints one line for each change, as version control does: A, M or D.
func writeDiff(w io.Writer, d *sandbox.Diff) error {
	if len(d.Changes) == 0 {
		return line("no differences")(w)
	}
	for _, c := range d.Changes {
		letter := strings.ToUpper(string(c.Kind[:min(1, len(c.Kind))]))
		detail := byteSize(c.Size)
		if c.OldSize != 0 && c.OldSize != c.Size {
			detail = byteSize(c.OldSize) + " → " + detail
		}
		if c.Type != "file" {
			detail = c.Type
		}
		if c.OldMode != "" && c.OldMode != c.Mode {
			detail += ", mode " + c.OldMode + " → " + c.Mode
		}
		if why, ok := noHunks[c.NoHunks]; ok {
			detail += ", " + why
		}
		if _, err := fmt.Fprintf(w, "%s %s  (%s)\n", letter, printable(c.Path), detail); err != nil {
			return err
		}
		for hunk := range strings.Lines(c.Hunks) {
			if err := line("  " + withoutControls(strings.TrimSuffix(hunk, "\n"), "\t"))(w); err != nil {
				return err
			}
		}
	}
	return nil
}
