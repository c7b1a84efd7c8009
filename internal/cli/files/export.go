package files

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/values"
)

// ExportCommand returns the export command.
func (g *Group) ExportCommand() *cobra.Command {
	var req api.ExportRequest
	var output, format string
	cmd := &cobra.Command{
		Use:   "export SBX|SNAP",
		Short: "Write the files of a sandbox or snapshot as an archive",
		Long: `Write the files of a sandbox or snapshot at one point in time as an archive. The sandbox continues.

  layer  the differences to the image, as a layer with whiteouts
  oci    an OCI image layout: the image and the differences as layers
  tar    all files of the root file system

The contents of /dev, /proc, /sys and /tmp, and the files ` + describe.IdentityFiles() + ` are those of the image.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Format = api.ExportFormat(format)
			return g.writeArchive(ctx, output, "export", format, func(w io.Writer) error { return c.Sandboxes.Export(ctx, args[0], req, w) })
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "-", "file to write to, - for standard output")
	f.StringVar(&format, "format", string(api.ExportLayer), "layer, oci or tar")
	values.CompleteValues(cmd, "format", string(api.ExportLayer), string(api.ExportOCI), string(api.ExportTar))
	f.BoolVar(&req.Gzip, "gzip", false, "compress the archive; with oci, its layers")
	return cmd
}

// writeArchive writes an archive to a file, or to standard output.
func (g *Group) writeArchive(ctx context.Context, output, phase, format string, write func(io.Writer) error) error {
	if output != "-" {
		mode := os.FileMode(0o666)
		if phase == "pack" { // it has the memory of programs
			mode = 0o600
		}
		return g.archiveFile(output, mode, func(w io.Writer) (int64, error) { return g.archive(ctx, w, phase, format, write) })
	}
	switch {
	case g.JSON:
		return api.Invalid("output", "--json needs -o FILE: the archive goes to standard output")
	case console.IsTerminal(g.Out):
		return api.Invalid("output", "an archive is not for a terminal: use -o FILE, or redirect standard output")
	}
	_, err := g.archive(ctx, g.Out, phase, format, write)
	return err
}

// archiveFile writes to a temporary file and renames it, so that the file is complete or unchanged.
// It writes directly to a file that is not regular.
func (g *Group) archiveFile(path string, mode os.FileMode, write func(io.Writer) (int64, error)) (err error) {
	temp, flags := path, os.O_WRONLY
	if st, err := os.Stat(path); err != nil || st.Mode().IsRegular() {
		temp, flags = filepath.Join(filepath.Dir(path), ".ramet-export-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL
	}
	f, err := os.OpenFile(temp, flags, mode)
	if err != nil {
		if temp != path {
			err = inDir(path, err)
		}
		return api.Invalid("output", "%w", err)
	}
	defer func() {
		f.Close() // without effect after success
		if err != nil && temp != path {
			os.Remove(temp)
		}
	}()
	n, err := write(f)
	if err == nil {
		err = f.Close()
	}
	if err == nil && temp != path {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	return g.Show(map[string]any{"path": path, "size_bytes": n}, func(io.Writer) error { return nil })
}

// archive writes an archive to w, reports progress and returns its size.
func (g *Group) archive(ctx context.Context, w io.Writer, phase, format string, write func(io.Writer) error) (int64, error) {
	p := g.NewProgress(ctx)
	out := &countWriter{w: w, progress: p, phase: phase}
	out.report() // the first bytes may take a while
	err := write(out)
	p.End(err == nil)
	if err == nil && !g.JSON {
		fmt.Fprintf(g.Err, "%s, %s\n", format, console.ByteSize(out.n))
	}
	return out.n, err
}

// countWriter reports the progress of what is written to it.
type countWriter struct {
	w        io.Writer
	n        int64
	progress console.Progress
	phase    string
}

// Write implements io.Writer.
func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.report()
	return n, err
}

func (c *countWriter) report() {
	c.progress.Update(api.Progress{Phase: c.phase, Done: c.n, Detail: console.ByteSize(c.n)}) // the total is unknown
}
