package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
)

// place is one side of a copy: a path in a sandbox, a local path, or a stream.
type place struct {
	ref  string // of a sandbox; empty for a local path
	path string
}

func (p place) isStream() bool { return p.ref == "" && p.path == console.StdStream }

// parsePlace parses SBX:PATH, PATH or -. A local path with a colon in its first element needs a
// slash before the colon.
func parsePlace(arg string) (place, error) {
	ref, p, ok := strings.Cut(arg, ":")
	if !ok || ref == "" || strings.Contains(ref, "/") || strings.HasPrefix(ref, ".") {
		return place{path: arg}, nil
	}
	if !strings.HasPrefix(p, "/") {
		return place{}, api.Invalid("path", "%q is not an absolute path in a sandbox; a file here with a colon in its name is written ./%s", p, arg)
	}
	return place{ref: ref, path: p}, nil
}

// copyResult is the JSON of a copy.
type copyResult struct {
	Path        string `json:"path"`
	Files       int64  `json:"files"`
	Directories int64  `json:"directories"`
	Bytes       int64  `json:"bytes"`
}

// copying is one run of cp.
type copying struct {
	*Group
	c        *client.Client
	user     string
	follow   bool
	progress console.Progress
	total    int64 // bytes, 0 if unknown
	shown    int64 // bytes in the last progress report
	res      copyResult
	warnings []string // printed when progress bars have ended
}

// CpCommand returns the cp command.
func (g *Group) CpCommand() *cobra.Command {
	var user string
	var follow bool
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files and directories into a sandbox or out of it",
		Long: "Copy files and directories into a sandbox or out of it. One of SRC and DST is SBX:PATH, the other a path on this machine or -.\n\n" +
			"As with docker cp, a directory is copied into DST if DST is an existing directory, and becomes DST otherwise. SRC/. copies the contents of the directory.\n" +
			"- is standard input or output: a tar archive if the path in the sandbox is a directory, the contents of a file otherwise.",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: g.completePlaces,
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			src, err := parsePlace(args[0])
			if err != nil {
				return err
			}
			dst, err := parsePlace(args[1])
			if err != nil {
				return err
			}
			if (src.ref == "") == (dst.ref == "") {
				return api.Errorf(api.CodeInvalid, "one of SRC and DST, and not both, must be SBX:PATH")
			}
			cp := &copying{Group: g, c: c, user: user, follow: follow, progress: g.NewProgress(ctx)}
			err = cp.run(ctx, src, dst)
			cp.progress.End(err == nil)
			for _, warning := range cp.warnings {
				fmt.Fprintln(g.Err, "ramet: warning:", warning)
			}
			if err != nil || dst.isStream() {
				return err
			}
			return g.Show(&cp.res, console.Line(fmt.Sprintf("copied %s in %s to %s", console.ByteSize(cp.res.Bytes), cp.res.entries(), console.Printable(args[1]))))
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "user in the sandbox whose permissions apply (default root)")
	cmd.Flags().BoolVarP(&follow, "follow-link", "L", false, "follow SRC if it is a symbolic link")
	return cmd
}

// entries describes the number of files and directories.
func (r *copyResult) entries() string {
	text := console.Count(r.Files, "file")
	switch r.Directories {
	case 0:
	case 1:
		text += " and 1 directory"
	default:
		text += fmt.Sprintf(" and %d directories", r.Directories)
	}
	return text
}

func (cp *copying) run(ctx context.Context, src, dst place) error {
	switch {
	case src.isStream():
		return cp.fromStream(ctx, dst)
	case dst.isStream():
		if cp.JSON {
			return api.Invalid("json", "the file goes to standard output")
		}
		return cp.toStream(ctx, src)
	case src.ref == "":
		return cp.upload(ctx, src.path, dst)
	}
	return cp.download(ctx, src, dst.path)
}

func (cp *copying) file(path string) api.FileRef {
	return api.FileRef{Path: path, User: cp.user}
}

// target returns the file at a path in a sandbox, or nil if there is none.
func (cp *copying) target(ctx context.Context, p place) (*api.FileInfo, error) {
	info, err := cp.c.Files.Stat(ctx, p.ref, cp.file(p.path))
	if api.CodeOf(err) == api.CodeNotFound {
		// The missing object may be the sandbox.
		if _, err := cp.c.Files.Stat(ctx, p.ref, cp.file("/")); err != nil {
			return nil, err
		}
		return nil, nil
	}
	return info, err
}

func (cp *copying) fromStream(ctx context.Context, dst place) error {
	info, err := cp.target(ctx, dst)
	if err != nil {
		return err
	}
	if info != nil && info.Type == "dir" {
		return cp.unpack(ctx, dst.ref, dst.path, cp.counted(cp.In))
	}
	_, err = cp.c.Files.Write(ctx, dst.ref, api.WriteRequest{FileRef: cp.file(dst.path), Atomic: true}, cp.counted(cp.In))
	cp.res.Path, cp.res.Files = dst.path, 1
	return err
}

func (cp *copying) unpack(ctx context.Context, ref, dir string, from io.Reader) error {
	res, err := cp.c.Files.WriteArchive(ctx, ref, cp.file(dir), false, from)
	if err != nil && cp.res.Bytes > 0 {
		return fmt.Errorf("%w; a part may have been copied to %s:%s before", err, ref, console.PrintablePath(dir))
	}
	if err != nil {
		return err
	}
	cp.res.Path, cp.res.Files, cp.res.Directories, cp.res.Bytes = dir, res.Files-res.Directories, res.Directories, res.Bytes
	return nil
}

func (cp *copying) toStream(ctx context.Context, src place) error {
	info, err := cp.c.Files.Stat(ctx, src.ref, cp.file(src.path))
	if err != nil {
		return err
	}
	var in io.ReadCloser
	if info.Type == "dir" {
		in, err = cp.c.Files.ReadArchive(ctx, src.ref, cp.file(src.path))
	} else {
		in, cp.total, err = cp.c.Files.Read(ctx, src.ref, cp.file(src.path))
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{cp.Out}, cp.counted(in), make([]byte, copyBuffer)); err != nil {
		return fmt.Errorf("copy to standard output: %w", err)
	}
	return nil
}

const (
	// copyBuffer is the size of the buffer of a copy, in bytes.
	copyBuffer = 256 << 10
	// progressStep is the number of bytes between two progress reports.
	progressStep = 8 << 20
)

// upload copies the local file or directory name.
func (cp *copying) upload(ctx context.Context, name string, dst place) error {
	stat := os.Lstat
	if cp.follow || strings.HasSuffix(name, "/") || strings.HasSuffix(name, "/.") {
		stat = os.Stat
	}
	info, err := stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return api.NotFound("file or directory", name)
	}
	if err != nil {
		return localError(err)
	}
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice) != 0 {
		return notCopied(name, "socket or device")
	}
	target, err := cp.target(ctx, dst)
	if err != nil {
		return err
	}
	to, into, err := destination(name, info.IsDir(), dst.path, target != nil, target != nil && target.Type == "dir")
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		return cp.uploadFile(ctx, name, info, place{dst.ref, to})
	}
	cp.res.Path = to
	dir, prefix := path.Dir(to), path.Base(to)
	if into { // the contents go into the existing directory
		dir, prefix = to, "."
	}
	pack := newPacker(name, prefix, cp.follow)
	defer pack.wait()
	err = cp.unpack(ctx, dst.ref, dir, cp.counted(pack))
	for _, s := range pack.close() {
		cp.leftOut(s, "socket or device")
	}
	cp.res.Path = to
	return err
}

// destination returns the path of a copy of name, by the rules of docker cp. into reports that the
// contents of a directory go into an existing one.
func destination(name string, isDir bool, dst string, exists, dstIsDir bool) (to string, into bool, err error) {
	contents := strings.HasSuffix(name, "/.") || name == "."
	switch {
	case !exists && !isDir && strings.HasSuffix(dst, "/"):
		return "", false, api.NotFound("directory", dst)
	case exists && !dstIsDir && isDir:
		return "", false, api.Errorf(api.CodeConflict, "%q is a file: a directory cannot be copied over it", dst)
	case dstIsDir && isDir && contents:
		return dst, true, nil
	case dstIsDir:
		base := filepath.Base(name)
		if base == "/" || base == ".." {
			return dst, true, nil
		}
		return path.Join(dst, base), false, nil
	}
	return strings.TrimRight(dst, "/"), false, nil
}

func (cp *copying) uploadFile(ctx context.Context, name string, info fs.FileInfo, dst place) error {
	f, err := os.Open(name)
	if err != nil {
		return localError(err)
	}
	defer f.Close()
	cp.total = info.Size()
	mode := uint32(info.Mode().Perm())
	_, err = cp.c.Files.Write(ctx, dst.ref, api.WriteRequest{FileRef: cp.file(dst.path), Mode: &mode, Atomic: true}, cp.counted(f))
	cp.res.Path, cp.res.Files = dst.path, 1
	return err
}

// download copies a file or directory in a sandbox to the local path name.
func (cp *copying) download(ctx context.Context, src place, name string) error {
	ref := cp.file(src.path)
	ref.NoFollow = !cp.follow && !strings.HasSuffix(src.path, "/") && !strings.HasSuffix(src.path, "/.")
	info, err := cp.c.Files.Stat(ctx, src.ref, ref)
	if err != nil {
		return err
	}
	switch info.Type {
	case "file", "dir", "symlink":
	default:
		return notCopied(src.path, info.Type)
	}
	st, err := os.Stat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return localError(err)
	}
	to, into, err := destination(src.path, info.Type == "dir", name, st != nil, st != nil && st.IsDir())
	if err != nil {
		return err
	}
	if st, err := os.Stat(to); err == nil { // to may be in the directory name
		if err := replaceable(to, st); err != nil {
			return err
		}
	}
	cp.res.Path = to
	if info.Type == "file" {
		return cp.downloadFile(ctx, src.ref, ref, info, to)
	}
	in, err := cp.c.Files.ReadArchive(ctx, src.ref, ref)
	if err != nil {
		return err
	}
	defer in.Close()
	dir, base := filepath.Dir(to), filepath.Base(to)
	if into {
		dir, base = to, "."
	}
	u, err := newUnpacker(dir, base)
	if err != nil {
		return localError(inDir(filepath.Join(dir, base), err))
	}
	defer u.close()
	err = u.all(cp.counted(in))
	cp.res.Files, cp.res.Directories, cp.res.Bytes = u.files, u.directories, u.bytes
	for _, s := range u.skipped {
		cp.leftOut(s, "pipe or device")
	}
	if err != nil && cp.res.Files+cp.res.Directories > 0 {
		return fmt.Errorf("%w; %s were copied to %s before", err, cp.res.entries(), console.PrintablePath(to))
	}
	return err
}

// notCopied is the error for a file of an unsupported type. Below a directory, such files are left
// out with a warning.
func notCopied(name, kind string) error {
	return api.Errorf(api.CodeUnsupported, "%q is not copied: it is a %s", name, kind)
}

// leftOut warns that a file below the copied directory is not copied.
func (cp *copying) leftOut(name, kind string) {
	cp.warnings = append(cp.warnings, fmt.Sprintf("%s is not copied: it is a %s", console.PrintablePath(name), kind))
}

// replaceable refuses to replace a pipe, a socket or a device by a copy.
func replaceable(name string, st fs.FileInfo) error {
	if st.Mode()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return api.Errorf(api.CodeConflict, "%q is not replaced: it is a pipe, socket or device", name)
	}
	return nil
}

// downloadFile writes to a temporary file and renames it when all data has arrived.
func (cp *copying) downloadFile(ctx context.Context, ref string, f api.FileRef, info *api.FileInfo, to string) error {
	in, size, err := cp.c.Files.Read(ctx, ref, f)
	if err != nil {
		return err
	}
	defer in.Close()
	cp.total = size
	tmp, err := os.CreateTemp(filepath.Dir(to), ".ramet-*")
	if err != nil {
		return localError(inDir(to, err))
	}
	defer os.Remove(tmp.Name()) // it does not exist any more after the rename
	defer tmp.Close()
	if _, err := copySparse(tmp, cp.counted(in), make([]byte, copyBuffer)); err != nil {
		return err
	}
	mode, err := strconv.ParseUint(info.Mode, 8, 32)
	if err != nil {
		return fmt.Errorf("mode of %q: %w", info.Path, err)
	}
	if err := errors.Join(tmp.Chmod(fs.FileMode(mode).Perm()), tmp.Close()); err != nil {
		return localError(err)
	}
	if err := os.Rename(tmp.Name(), to); err != nil {
		return localError(err)
	}
	cp.res.Files = 1
	return nil
}

// inDir replaces the name of a temporary file in err by path, because the user does not know the
// temporary file.
func inDir(path string, err error) error {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return err
	}
	return fmt.Errorf("directory %q of %q: %w", filepath.Dir(path), filepath.Base(path), of.Err)
}

// localError gives errors of local files the codes that errors of files in sandboxes have.
func localError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return api.Errorf(api.CodeNotFound, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return api.Errorf(api.CodePermission, "%w", err)
	}
	return err
}

// counted returns a reader that counts the bytes of r and reports progress.
func (cp *copying) counted(r io.Reader) io.Reader { return &countedReader{r, cp} }

type countedReader struct {
	io.Reader
	cp *copying
}

// Size returns the number of bytes, or 0 if it is unknown.
func (r *countedReader) Size() int64 { return r.cp.total }

// Read implements io.Reader.
func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	cp := r.cp
	cp.res.Bytes += int64(n)
	if cp.res.Bytes-cp.shown >= progressStep {
		cp.shown = cp.res.Bytes
		cp.progress.Update(api.Progress{Phase: "copy", Done: cp.res.Bytes, Total: cp.total, Detail: console.ByteSize(cp.res.Bytes)})
	}
	return n, err
}

// completePlaces completes sandboxes for the arguments of cp. The shell completes local paths,
// where an argument may be one.
func (g *Group) completePlaces(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	directive := cobra.ShellCompDirectiveNoSpace
	if len(args) == 1 {
		if src, err := parsePlace(args[0]); err != nil || src.ref != "" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		directive |= cobra.ShellCompDirectiveNoFileComp
	}
	refs, _ := g.CompleteSandboxes(cmd, nil, prefix)
	for i, ref := range refs {
		ref, about, _ := strings.Cut(ref, "\t")
		refs[i] = ref + ":/\t" + about
	}
	return refs, directive
}
