package image

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/registry"
)

// PullOptions are the parameters of Pull.
type PullOptions struct {
	Options
	// Insecure allows plain HTTP. Registries on the loopback interface need no
	// permission.
	Insecure bool
	// Anonymous does not use the credentials of this process's user.
	Anonymous bool
}

// Pull makes an image of a container image in a registry, with the credentials of docker's
// and podman's configuration unless Anonymous is set. All blobs are checked against their
// digests. Layers of an image that was pulled before, by whichever reference, and that is seen, are
// not fetched again: it gets the name. Errors:
// CodeInvalid for ref, CodeNotFound, CodeUnavailable if the registry cannot be
// reached or denies access, CodeUnsupported if the image is for other machines.
func (s *Store) Pull(ctx context.Context, ref string, opt PullOptions) (api.Image, error) {
	img, err := pull(ctx, s, ref, opt)
	if opt.Anonymous {
		err = registry.WithoutAnswer("image", ref, err)
	}
	return img, err
}

func pull(ctx context.Context, s *Store, ref string, opt PullOptions) (api.Image, error) {
	var how []name.Option
	if opt.Insecure {
		how = append(how, name.Insecure)
	}
	parsed, err := name.ParseReference(ref, how...)
	if err != nil {
		return api.Image{}, api.Invalid("ref", "%q is not a reference: %w", ref, err)
	}
	if opt.Source == "" {
		opt.Source = parsed.Name()
	}
	if opt.Name == "" {
		opt.Name = localName(parsed)
	} else if opt.Name, err = ParseName("name", opt.Name); err != nil {
		return api.Image{}, err
	}
	var credentials authn.Keychain = authn.DefaultKeychain
	if opt.Anonymous {
		credentials = authn.NewMultiKeychain() // it has none
	}
	if opt.Progress != nil {
		opt.Progress(api.Progress{Phase: PhaseFetch})
	}
	remoteImage, err := registry.Image(ctx, parsed, credentials)
	if err != nil {
		return api.Image{}, registry.Error("image", ref, err)
	}
	container, err := configurationOf(ref, remoteImage)
	if err != nil {
		return api.Image{}, err
	}
	plain := opt.Config == nil && !opt.SquashOwners // else the image depends on more than on the container's
	if plain {
		if img, found, err := s.pulled(container, opt.Options); found || err != nil {
			return img, err
		}
	}
	return s.build(ctx, opt.Options, func(b *builder) error {
		b.progress.begin(PhaseFetch, 0)
		img, err := describeRemote(ref, remoteImage)
		if err != nil {
			return err
		}
		if plain {
			b.pulled = container
		}
		return b.container(PhaseFetch, img)
	})
}

// configurationOf returns the digest of the configuration of an image, which the manifest has. The
// configuration has those of the layers' contents.
func configurationOf(ref string, img v1.Image) (string, error) {
	manifest, err := img.Manifest() // ConfigName fetches the configuration
	if err != nil {
		return "", registry.Error("image", ref, err)
	}
	return manifest.Config.Digest.String(), nil
}

// pulled returns the image that was pulled with a configuration, if it is seen and its file is there. It
// gets the name of the options.
func (s *Store) pulled(container string, opt Options) (img api.Image, found bool, err error) {
	var id string
	err = s.files.Locked(func() error {
		var err error
		if id, err = s.idOfContainer(container); id == "" || err != nil {
			return err
		}
		found = true
		if opt.KeepName {
			if err := s.CheckName(opt.Name, id); err != nil {
				return err
			}
		}
		if opt.Name == "" {
			return nil
		}
		return s.setName(opt.Name, id)
	})
	if err != nil {
		return api.Image{}, found, fmt.Errorf("name image: %w", err)
	}
	if !found {
		return api.Image{}, false, nil
	}
	img, err = s.Resolve(id)
	return img, true, err
}

// NamesOf returns how Pull names the image of a reference: local is its name in the store, or ""
// if it gets none, and source its origin. ok is false if ref is no reference.
func NamesOf(ref string) (local, source string, ok bool) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return "", "", false
	}
	return localName(parsed), parsed.Name(), true
}

// localName returns the name of a pulled image in the store: its short form, without the default
// registry and without ports. It is "" if ref is a digest or has no short form.
func localName(ref name.Reference) string {
	tag, ok := ref.(name.Tag)
	if !ok {
		return ""
	}
	repo := tag.Context()
	local := repo.RepositoryStr()
	if repo.RegistryStr() == name.DefaultRegistry {
		local = strings.TrimPrefix(local, "library/")
	} else {
		host, _, _ := strings.Cut(repo.RegistryStr(), ":")
		local = host + "/" + local
	}
	parsed, err := ParseName("name", local+":"+tag.TagStr())
	if err != nil {
		return ""
	}
	return parsed
}

func describeRemote(ref string, img v1.Image) (*containerImage, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return nil, registry.Error("image", ref, err)
	}
	if manifest.Config.Size > maxDocument {
		return nil, refused("configuration has %d bytes: it may have %d", manifest.Config.Size, maxDocument)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, registry.Error("image", ref, err)
	}
	remoteLayers, err := img.Layers()
	if err != nil {
		return nil, registry.Error("image", ref, err)
	}
	layers := make([]containerLayer, len(remoteLayers))
	for i, l := range remoteLayers {
		digest, err := l.Digest()
		if err != nil {
			return nil, registry.Error("image", ref, err)
		}
		size, err := l.Size()
		if err != nil {
			return nil, registry.Error("image", ref, err)
		}
		layers[i] = containerLayer{digest: digest, size: size, open: func(context.Context) (io.ReadCloser, error) {
			blob, err := l.Compressed()
			return blob, registry.Error("image", ref, err)
		}}
	}
	return newContainerImage(config, layers, "")
}
