package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// PackCommand returns the pack command.
func (g *Group) PackCommand() *cobra.Command {
	var req api.PackRequest
	var output string
	var dryRun bool
	var encryptTo []string
	cmd := &cobra.Command{
		Use:   "pack SNAP",
		Short: "Write a snapshot to a file for other machines",
		Long: `Write a snapshot to a file, from which 'ramet unpack' makes a snapshot on another machine: memory, processes, files and image. The file is an OCI image layout in a tar.

--encrypt-to encrypts the file with age. The file contains the environment of the sandbox and all of its memory. Values of secrets and of secret variables are not packed, but memory contains whatever the programs have read. --dry-run lists the contents and writes nothing.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSnapshots),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if dryRun {
				contents, err := c.Snapshots.PackContents(ctx, args[0])
				if err != nil {
					return err
				}
				return g.Show(contents, func(w io.Writer) error { return showContents(w, contents) })
			}
			to, err := recipients(encryptTo)
			if err != nil {
				return err
			}
			return g.writeArchive(ctx, output, "pack", "snapshot", func(w io.Writer) error {
				return encrypted(w, to, func(w io.Writer) error { return c.Snapshots.Pack(ctx, args[0], req, w) })
			})
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "-", "file to write to, - for standard output")
	f.BoolVar(&req.WithoutImage, "without-image", false, "leave the image out: the other machine must have it")
	f.BoolVar(&req.WithEngine, "with-engine", false, "include the program that loads the state, for machines with another version of Ramet; they need --trust")
	f.BoolVar(&req.Sign, "sign", false, "sign the snapshot with the key that 'ramet key' shows")
	f.StringArrayVar(&encryptTo, "encrypt-to", nil, "encrypt the file for a recipient of age, age1…, or for those in a file; may be repeated")
	f.BoolVar(&dryRun, "dry-run", false, "list the contents, and write nothing")
	return cmd
}

// showContents prints what a pack contains.
func showContents(w io.Writer, c *api.PackContents) error {
	rows := make([][]string, len(c.Parts))
	for i, p := range c.Parts {
		rows[i] = []string{p.Kind, console.ByteSize(p.SizeBytes), p.Snapshot, p.Digest[:min(len(p.Digest), len("sha256:")+12)]}
	}
	if err := console.Table([]string{"CONTENTS", "SIZE", "SNAPSHOT", "DIGEST"}, rows)(w); err != nil {
		return err
	}
	network := "none"
	if c.Network != nil {
		network = fmt.Sprintf("%d rules", len(c.Network.Rules))
	}
	list := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return console.Printable(strings.Join(names, ", "))
	}
	_, err := fmt.Fprintf(w, "variables: %s\nnetwork: %s\nsecrets (names only): %s\nleft out: %s\n", list(c.Env), network, list(c.Secrets), list(c.LeftOut))
	return err
}

// UnpackCommand returns the unpack command.
func (g *Group) UnpackCommand() *cobra.Command {
	var req api.UnpackRequest
	var quiet bool
	var identities, trust []string
	cmd := &cobra.Command{
		Use:   "unpack FILE",
		Short: "Make a snapshot of a file that pack has written",
		Long: `Make a snapshot of a file that 'ramet pack' has written, here or on another machine. FILE - is standard input.

A snapshot that this machine cannot restore is refused before its pages are read. Parts that another snapshot has are shared with it. If unpacking fails, nothing is left behind.

Without --trust the sandboxes of the snapshot reach nothing of the network, whatever the snapshot says, until 'ramet network set'.`,
		Args: cobra.ExactArgs(1),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			var err error
			if req.Trust, err = values.ParseKeys("trust", trust); err != nil {
				return err
			}
			in, total := g.In, int64(0)
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return api.Invalid("file", "%w", err)
				}
				defer f.Close()
				if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
					total = st.Size()
				}
				in = f
			}
			p := g.ProgressUnless(ctx, quiet)
			plain, err := decrypted(&countReader{r: in, total: total, progress: p}, identities)
			var snap *api.Snapshot
			if err == nil {
				snap, err = c.Snapshots.Unpack(ctx, plain, req)
			}
			p.End(err == nil)
			if err != nil {
				return err
			}
			return g.ShowIDs(snap, quiet, []string{snap.ID}, console.Line(strings.TrimRight(snap.ID+"  "+snap.Name, " ")))
		}),
	}
	f := cmd.Flags()
	values.NameVar(f, &req.Name, "name of the snapshot (default the name that it was packed with)")
	f.StringArrayVar(&trust, "trust", nil, "key, or file of keys, as 'ramet key' shows it: refuse the snapshot unless one of these has signed it; may be repeated")
	f.StringArrayVar(&identities, "identity", nil, "file with the age identity that an encrypted file is for; may be repeated")
	values.QuietVar(f, &quiet)
	return cmd
}

// countReader reports the progress of what is read from it.
type countReader struct {
	r        io.Reader
	n, total int64
	progress console.Progress
}

// Read implements io.Reader.
func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.progress.Update(api.Progress{Phase: "unpack", Done: c.n, Total: c.total})
	return n, err
}
