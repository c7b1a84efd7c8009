package dockerfile

import (
	"path"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"ramet.dev/ramet/api"
)

// MountKind is what a command sees at the target of a mount.
type MountKind string

// The kinds.
const (
	MountBind   MountKind = "bind"   // files of the build context or of a stage, which are gone afterwards
	MountTmpfs  MountKind = "tmpfs"  // an empty directory, which is gone afterwards
	MountCache  MountKind = "cache"  // a directory that builds share
	MountSecret MountKind = "secret" // a text that no state has
)

// Mount is something that a command has besides the files of its stage.
type Mount struct {
	Kind     MountKind
	Target   string // absolute; empty for a secret that is a variable only
	Copy     *Copy  // of MountBind
	ID       string // of MountCache and MountSecret
	ReadOnly bool   // of MountCache
	Env      string // of MountSecret: the variable that has it, or empty
	UID, GID int    // of MountSecret
	Mode     uint32 // of MountSecret
}

// Apart reports whether a command has mounts that no snapshot may have. Its files are kept as an image.
func (r *Run) Apart() bool {
	for _, m := range r.Mounts {
		if m.Kind == MountCache || m.Kind == MountSecret {
			return true
		}
	}
	return false
}

// supportedMounts refuses mounts that cannot be made. Variables in them are not known yet.
func (p *planner) supportedMounts(c *instructions.RunCommand, stage int, checked map[int]bool) error {
	at := line(c.Location())
	if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		return p.invalid(at, "%w", err)
	}
	for _, m := range instructions.GetMounts(c) {
		switch m.Type {
		case instructions.MountTypeBind:
			if m.From == "" {
				break
			}
			if i := p.stageIndex(m.From, stage); i >= 0 {
				if err := p.check(i, checked); err != nil {
					return err
				}
			} else if err := api.ValidImageRef("from", m.From); err != nil {
				return p.invalid(at, "RUN --mount=from=%s is no stage above and no image", m.From)
			}
		case instructions.MountTypeCache:
			if m.From != "" || m.UID != nil && *m.UID != 0 || m.GID != nil && *m.GID != 0 || m.Mode != nil && *m.Mode != 0o755 {
				return p.unsupported(at, "RUN --mount=type=cache with from, uid, gid or mode is not supported: caches belong to root")
			}
		case instructions.MountTypeTmpfs, instructions.MountTypeSecret:
		default:
			return p.unsupported(at, "RUN --mount=type=%s is not supported: bind, cache, secret and tmpfs are", m.Type)
		}
	}
	return nil
}

// mounts returns the mounts of a command, and what of them decides its result.
func (b *stager) mounts(c *instructions.RunCommand) (mounts []Mount, decides []any, err error) {
	at := line(c.Location())
	for _, m := range instructions.GetMounts(c) {
		mount := Mount{Kind: MountKind(m.Type), ReadOnly: m.ReadOnly}
		if m.Target != "" {
			mount.Target = b.absolute(m.Target)
		}
		source := ""
		switch mount.Kind {
		case MountBind:
			mount.Copy, source, err = b.bind(m, at)
		case MountCache:
			if mount.ID = m.CacheID; mount.ID == "" {
				mount.ID = mount.Target
			}
		case MountSecret:
			err = b.secret(m, &mount, at)
		}
		if err != nil {
			return nil, nil, err
		}
		if mount.Target == "/" || mount.Target == "" && mount.Env == "" && mount.Kind != MountSecret {
			return nil, nil, b.invalid(at, "RUN --mount=type=%s needs a target below /", m.Type)
		}
		if mount.Copy != nil {
			mount.Copy.Dest = mount.Target
		}
		mounts = append(mounts, mount)
		decides = append(decides, []any{mount.Kind, mount.Target, source, mount.ID, mount.Env, mount.UID, mount.GID, mount.Mode})
	}
	return mounts, decides, nil
}

// bind returns the copy by which files are there while a command runs, and the key of their source.
func (b *stager) bind(m *instructions.Mount, at int) (c *Copy, source string, err error) {
	c = &Copy{}
	from := path.Join("/", m.Source)
	if m.From != "" {
		if i := b.stageIndex(m.From, b.index); i >= 0 {
			c.From, err = b.planner.stage(i)
		} else {
			c.From, err = b.imageStage(m.From, at)
		}
		if err != nil {
			return nil, "", err
		}
		c.Patterns = []string{from}
		return c, c.From.Key() + from, nil
	}
	if c.Files, err = b.opt.Context(Sources{Patterns: []string{strings.TrimPrefix(from, "/")}}); err != nil {
		return nil, "", b.located(api.CodeOf(err), at, "RUN --mount: %w", err)
	}
	return c, c.Files.Digest(), nil
}

// secret fills in a mount of a secret.
func (b *stager) secret(m *instructions.Mount, mount *Mount, at int) error {
	id := m.CacheID
	if m.Source != "" {
		id = m.Source
	}
	if id == "" {
		id = path.Base(m.Target)
	}
	mount.ID, mount.Mode = id, 0o400
	if m.Env != nil {
		if mount.Env = *m.Env; mount.Env == "" {
			mount.Env = id
		}
	} else if mount.Target == "" {
		mount.Target = "/run/secrets/" + path.Base(id)
	}
	if m.Mode != nil {
		mount.Mode = uint32(*m.Mode & 0o7777)
	}
	if m.UID != nil {
		mount.UID = int(*m.UID)
	}
	if m.GID != nil {
		mount.GID = int(*m.GID)
	}
	if m.Required && !b.opt.Secrets[id] {
		return b.invalid(at, "RUN needs the secret %q: give --secret id=%s,src=FILE", id, id)
	}
	return nil
}
