package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

func (a *app) exportCommand() *cobra.Command {
	var req api.ExportRequest
	var output, format string
	cmd := &cobra.Command{
		Use:   "export SBX|SNAP",
		Short: "Write the files of a sandbox or snapshot as an archive",
		Long: `Write the files of a sandbox or snapshot as they are at one moment; the sandbox goes on.

  layer  what differs from the image, as a layer to be put on it, with whiteouts
  oci    an archive of an OCI image layout: the image and the changes as layers
  tar    all files of the root file system

What is in /dev, /proc, /sys and /tmp, and ` + identityFiles() + ` are the image's.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Format = api.ExportFormat(format)
			if output != "-" {
				return a.exportFile(ctx, c, args[0], req, output)
			}
			switch {
			case a.json:
				return api.Invalid("output", "--json needs -o FILE: the archive goes to standard output")
			case isTerminal(a.Out):
				return api.Invalid("output", "an archive is not for a terminal: use -o FILE, or redirect standard output")
			}
			_, err := a.export(ctx, c, args[0], req, a.Out)
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "-", "file to write, - for standard output")
	f.StringVar(&format, "format", string(api.ExportLayer), "layer, oci or tar")
	completeValues(cmd, "format", string(api.ExportLayer), string(api.ExportOCI), string(api.ExportTar))
	f.BoolVar(&req.Gzip, "gzip", false, "compress; with oci, the layers in the archive")
	return cmd
}

// identityFiles lists the files that tell a sandbox who it is.
func identityFiles() string {
	files := api.IdentityFiles()
	last := len(files) - 1
	return strings.Join(files[:last], ", ") + " and " + files[last]
}

// exportFile writes to a file, which is complete or as it was before. What is no
// regular file is written to as it is.
func (a *app) exportFile(ctx context.Context, c *client.Client, ref string, req api.ExportRequest, path string) (err error) {
	temp, flags := path, os.O_WRONLY
	if st, err := os.Stat(path); err != nil || st.Mode().IsRegular() {
		temp, flags = filepath.Join(filepath.Dir(path), ".ramet-export-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL
	}
	f, err := os.OpenFile(temp, flags, 0o666)
	if err != nil {
		if temp != path {
			err = inDir(path, err)
		}
		return api.Invalid("output", "%w", err)
	}
	defer func() {
		f.Close() // again, if all went well
		if err != nil && temp != path {
			os.Remove(temp)
		}
	}()
	n, err := a.export(ctx, c, ref, req, f)
	if err == nil {
		err = f.Close()
	}
	if err == nil && temp != path {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	return a.show(map[string]any{"path": path, "size_bytes": n}, func(io.Writer) error { return nil })
}

// export writes to w, shows how far that is and returns how much it was.
func (a *app) export(ctx context.Context, c *client.Client, ref string, req api.ExportRequest, w io.Writer) (int64, error) {
	p := a.newProgress(ctx)
	out := &countWriter{w: w, progress: p}
	out.report() // it may take a while until there is something
	err := c.Sandboxes.Export(ctx, ref, req, out)
	p.end(err == nil)
	if err == nil && !a.json {
		fmt.Fprintf(a.Err, "%s, %s\n", req.Format, byteSize(out.n))
	}
	return out.n, err
}

// countWriter reports what is written through it.
type countWriter struct {
	w        io.Writer
	n        int64
	progress progress
}

// Write implements io.Writer.
func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.report()
	return n, err
}

func (c *countWriter) report() {
	c.progress.update(api.Progress{Phase: "export", Done: c.n, Detail: byteSize(c.n)}) // nobody knows of how much
}

func (a *app) commitCommand() *cobra.Command {
	var req api.CommitRequest
	var quiet bool
	cmd := &cobra.Command{
		Use:   "commit SBX|SNAP NAME",
		Short: "Make an image of the files of a sandbox or snapshot",
		Long: `Make an image of the files of a sandbox or snapshot as they are at one moment; the sandbox goes on.

What is in /dev, /proc, /sys and /tmp, and ` + identityFiles() + ` are the image's that it was made from, and so is the configuration: environment, command, directory and user. A name that an image has is refused, unless --force says that it is to move.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			req.Name = args[1]
			p := a.progressUnless(ctx, quiet)
			img, err := c.Images.Commit(ctx, args[0], req, p.update)
			p.end(err == nil)
			if err != nil {
				return err
			}
			return a.show(img, line(img.ID))
		}),
	}
	cmd.Flags().StringVarP(&req.Message, "message", "m", "", "what the image is, for people")
	quietVar(cmd.Flags(), &quiet)
	cmd.Flags().BoolVar(&req.Replace, "force", false, "take the name from the image that has it, which stays without it")
	return cmd
}
