package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/build/contextdir"
	"ramet.dev/ramet/internal/build/dockerfile"
)

// maxUsers bounds the files of users and groups, in bytes.
const maxUsers = 1 << 20

// archive is a tar stream on its way into a sandbox.
type archive struct{ *tar.Writer }

func (a *archive) dir(name string, attributes contextdir.Attributes) error {
	h := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Now(), Format: tar.FormatPAX}
	attributes.Apply(h)
	return a.WriteHeader(h)
}

func (a *archive) file(name, text string, attributes contextdir.Attributes) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Now(), Format: tar.FormatPAX}
	attributes.Apply(h)
	if err := a.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.WriteString(a, text)
	return err
}

// send unpacks an archive below a directory that exists. It is written meanwhile.
func (w *worker) send(dir string, fill func(*archive) error) error {
	return w.sendRaw(dir, func(to io.Writer) error {
		a := &archive{tar.NewWriter(to)}
		if err := fill(a); err != nil {
			return err
		}
		return a.Close()
	})
}

// errReceiverEnded is what an archive cannot be written with once its receiver has refused it.
var errReceiverEnded = errors.New("the archive was not read to its end")

func (w *worker) sendRaw(dir string, fill func(io.Writer) error) error {
	r, to := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		err := fill(to)
		to.CloseWithError(err)
		filled <- err
	}()
	_, err := w.client.Files.WriteArchive(w.ctx, w.id, api.FileRef{Path: dir}, false, r)
	r.CloseWithError(errReceiverEnded)
	// If writing failed by itself, that is the reason for a failed request.
	if ferr := <-filled; ferr != nil && !errors.Is(ferr, errReceiverEnded) {
		return ferr
	}
	return err
}

// copy copies files of the build context or of another stage.
func (w *worker) copy(c *dockerfile.Copy) error {
	owner, err := w.owner(c.Owner)
	if err != nil {
		return err
	}
	p := &placing{worker: w, Copy: c, owner: owner, into: c.DestDir}
	if !p.into {
		if p.into, err = w.isDir(c.Dest); err != nil {
			return err
		}
	}
	if c.From != nil {
		return p.fromStage()
	}
	selected, _ := c.Files.(*contextdir.Selection)
	return p.fromContext(selected)
}

// placing is a COPY or ADD that is carried out.
type placing struct {
	*worker
	*dockerfile.Copy
	owner contextdir.Attributes
	into  bool // files are copied into Dest and not to it
}

// attributes returns those of the files.
func (p *placing) attributes() contextdir.Attributes {
	a := p.owner
	a.Mode = p.Mode
	return a
}

// target makes the directory that a source is copied into, and returns the new name of the source if it is a file.
func (p *placing) target(isDir bool) (dir, rename string, err error) {
	dir = p.Dest
	if !isDir && !p.into {
		dir, rename = path.Dir(p.Dest), path.Base(p.Dest)
	}
	return dir, rename, p.makeDir(dir, p.owner)
}

// fromContext copies files of the build context, and those whose text is in the Dockerfile.
func (p *placing) fromContext(files *contextdir.Selection) error {
	if files != nil {
		if len(files.Sources) > 1 {
			p.into = true // a pattern matched several files
		}
		for i := range files.Sources {
			if err := p.source(files, &files.Sources[i]); err != nil {
				return err
			}
		}
	}
	for _, inline := range p.Inline {
		dir, rename, err := p.target(false)
		if err != nil {
			return err
		}
		if rename == "" {
			rename = path.Base(inline.Name)
		}
		if err := p.send(dir, func(to *archive) error { return to.file(rename, inline.Data, p.attributes()) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *placing) source(files *contextdir.Selection, source *contextdir.Source) error {
	if p.Unpack && !source.IsDir {
		unpacked, err := p.unpack(files, source)
		if unpacked || err != nil {
			return err
		}
	}
	dir, rename, err := p.target(source.IsDir)
	if err != nil {
		return err
	}
	return p.send(dir, func(to *archive) error { return files.WriteTar(to.Writer, source, rename, p.attributes()) })
}

// unpack unpacks a source into the destination if it is an archive.
func (p *placing) unpack(files *contextdir.Selection, source *contextdir.Source) (unpacked bool, err error) {
	f, err := files.OpenFile(source)
	if err != nil {
		return false, err
	}
	defer f.Close()
	in, err := contextdir.Unpack(f)
	if err != nil || in == nil {
		return false, err
	}
	defer in.Close()
	if err := p.makeDir(p.Dest, p.owner); err != nil {
		return true, err
	}
	if p.Owner == "" && p.Mode == nil {
		return true, p.sendRaw(p.Dest, func(to io.Writer) error {
			_, err := io.Copy(to, in)
			return err
		})
	}
	return true, p.send(p.Dest, func(to *archive) error {
		return rewrite(to, in, func(h *tar.Header) bool {
			p.change(h)
			return true
		})
	})
}

// change gives a file the owner and mode that were asked for.
func (p *placing) change(h *tar.Header) {
	if p.Owner != "" {
		h.Uid, h.Gid, h.Uname, h.Gname = p.owner.UID, p.owner.GID, "", ""
	}
	if p.Mode != nil && h.Typeflag != tar.TypeSymlink {
		h.Mode = int64(*p.Mode)
	}
}

// rewrite copies an archive with other headers, without the entries for which change is false.
func rewrite(to *archive, from io.Reader, change func(*tar.Header) bool) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return api.Invalid("archive", "read archive: %w", err)
		}
		if !change(h) {
			continue
		}
		h.Format = tar.FormatPAX
		if err := to.WriteHeader(h); err != nil {
			return fmt.Errorf("copy %s: %w", h.Name, err)
		}
		if _, err := io.Copy(to, in); err != nil {
			return fmt.Errorf("copy %s: %w", h.Name, err)
		}
	}
}

// fromStage copies files of a stage or image, with their owners.
func (p *placing) fromStage() error {
	other, err := p.sandbox(p.From)
	if err != nil {
		return fmt.Errorf("COPY --from=%s: %w", p.From.Name, err)
	}
	var sources []string
	for _, pattern := range p.Patterns {
		found := []string{pattern}
		if strings.ContainsAny(pattern, `*?[\`) {
			if found, err = p.glob(other, pattern); err != nil {
				return err
			}
			if len(found) == 0 {
				return api.Errorf(api.CodeNotFound, "COPY --from=%s: %q matches no file", p.From.Name, pattern)
			}
		}
		sources = append(sources, found...)
	}
	if len(sources) > 1 {
		p.into = true
	}
	for _, source := range sources {
		if err := p.fromSandbox(other, source); err != nil {
			return fmt.Errorf("COPY --from=%s: %w", p.From.Name, err)
		}
	}
	return nil
}

// glob returns the paths in a sandbox that match a pattern, sorted.
func (p *placing) glob(sandbox, pattern string) (found []string, err error) {
	top := pattern[:strings.IndexAny(pattern, `*?[\`)]
	top = path.Clean("/" + top[:strings.LastIndexByte(top, '/')+1])
	depth := strings.Count(pattern, "/") - strings.Count(strings.TrimSuffix(top, "/"), "/")
	err = p.client.Files.List(p.ctx, sandbox, api.ListRequest{FileRef: api.FileRef{Path: top}, Depth: depth}, func(f api.FileInfo) error {
		if ok, err := path.Match(pattern, f.Path); err == nil && ok {
			found = append(found, f.Path)
		}
		return nil
	})
	if api.CodeOf(err) == api.CodeNotFound {
		err = nil
	}
	slices.Sort(found)
	return found, err
}

// fromSandbox copies a file, or what is in a directory, of another sandbox.
func (p *placing) fromSandbox(sandbox, source string) error {
	info, err := p.client.Files.Stat(p.ctx, sandbox, api.FileRef{Path: source})
	if err != nil {
		return err
	}
	isDir := info.Type == "dir"
	dir, rename, err := p.target(isDir)
	if err != nil {
		return err
	}
	from, err := p.client.Files.ReadArchive(p.ctx, sandbox, api.FileRef{Path: source})
	if err != nil {
		return err
	}
	defer from.Close()
	return p.send(dir, func(to *archive) error {
		return rewrite(to, from, func(h *tar.Header) bool {
			p.change(h)
			if !isDir {
				if rename != "" {
					h.Name = rename
				}
				return true
			}
			// Names begin with that of the directory, whose contents are copied.
			h.Name = below(h.Name)
			if h.Typeflag == tar.TypeLink {
				h.Linkname = below(h.Linkname)
			}
			return strings.Trim(h.Name, "/") != ""
		})
	})
}

// below returns a path without its first element.
func below(name string) string {
	_, rest, _ := strings.Cut(name, "/")
	return rest
}

// owner returns the numbers of a user and group, by the files of the sandbox. Without a group it is the user's.
func (w *worker) owner(text string) (owner contextdir.Attributes, err error) {
	if text == "" {
		return owner, nil
	}
	user, group, hasGroup := strings.Cut(text, ":")
	if owner.UID, owner.GID, err = w.number("/etc/passwd", user, true); err != nil {
		return owner, err
	}
	if hasGroup {
		owner.GID, _, err = w.number("/etc/group", group, false)
	}
	return owner, err
}

// number returns the number of a name in a file of users or groups, and the group of a user.
func (w *worker) number(file, name string, users bool) (number, group int, err error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), int(n), nil
	}
	lines, err := w.lines(w.ctx, file)
	if err != nil {
		return 0, 0, err
	}
	for _, line := range lines {
		fields := strings.Split(line, ":")
		if len(fields) < 3 || fields[0] != name {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 31)
		group := n
		if err == nil && users && len(fields) > 3 {
			group, err = strconv.ParseUint(fields[3], 10, 31)
		}
		if err == nil {
			return int(n), int(group), nil
		}
	}
	if name == "root" {
		return 0, 0, nil
	}
	return 0, 0, api.Errorf(api.CodeNotFound, "%q is not in %s", name, file)
}

// lines returns the lines of a small file of the sandbox, none if it is missing.
func (w *worker) lines(ctx context.Context, file string) ([]string, error) {
	r, _, err := w.client.Files.Read(ctx, w.id, api.FileRef{Path: file})
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxUsers))
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.ToValidUTF8(text, nil)), "\n"), nil
}
