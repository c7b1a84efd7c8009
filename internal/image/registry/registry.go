package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/choose"
)

// maxDepth bounds indexes of indexes.
const maxDepth = 4

// Image returns the image for this machine that ref stands for. Its parts are fetched when they are
// read, as long as ctx allows it. Error gives an error its code.
func Image(ctx context.Context, ref name.Reference, credentials authn.Keychain) (v1.Image, error) {
	described, err := remote.Get(ref,
		remote.WithContext(ctx),
		remote.WithAuthFromKeychain(credentials),
		remote.WithTransport(Transport()),
	)
	if err != nil {
		return nil, err
	}
	return imageFor(described)
}

// imageFor returns the image for this machine of what a reference stands for.
func imageFor(described *remote.Descriptor) (v1.Image, error) {
	if !described.MediaType.IsIndex() {
		return described.Image()
	}
	index, err := described.ImageIndex()
	for range maxDepth {
		if err != nil {
			return nil, err
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			return nil, err
		}
		d, err := fromIndex(manifest)
		if err != nil {
			return nil, err
		}
		if !d.MediaType.IsIndex() {
			return index.Image(d.Digest)
		}
		if index, err = index.ImageIndex(d.Digest); err != nil {
			return nil, err
		}
	}
	return nil, api.Errorf(api.CodeHostile, "indexes are nested too deep")
}

// fromIndex returns the entry for this machine, the first of those that are equally good.
func fromIndex(index *v1.IndexManifest) (v1.Descriptor, error) {
	var found []v1.Descriptor
	var others []string
	for _, d := range index.Manifests {
		switch {
		case !choose.Runs(&d):
			others = append(others, d.Platform.String())
		case choose.IsImage(&d):
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return v1.Descriptor{}, api.Errorf(api.CodeUnsupported, "image is for %s: sandboxes run %s", strings.Join(others, ", "), choose.Platform)
	}
	found, err := choose.Best(found)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return found[0], nil
}

// Error gives errors of the registry's client a code. what is what the registry was asked for.
func Error(what, ref string, err error) error {
	var answer *transport.Error
	var classed *api.Error
	var connection net.Error // errors of http.Client implement it
	switch {
	case err == nil, errors.As(err, &classed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return api.Errorf(api.CodeNotFound, "registry has no %s %q: %w", what, ref, err)
	case errors.As(err, &answer):
		return api.Errorf(api.CodeUnavailable, "registry refuses %q: %w", ref, err)
	case errors.As(err, &connection):
		return api.Errorf(api.CodeUnavailable, "registry of %q cannot be reached: %w", ref, err)
	}
	return api.Errorf(api.CodeCorrupt, "registry gives a damaged %s %q: %w", what, ref, err)
}

// WithoutAnswer returns an error of a pull without what a server has answered: a reference may lead to a server of this
// machine that is no registry, and whose answers are not for whoever names it.
func WithoutAnswer(what, ref string, err error) error {
	var answer *transport.Error
	var dial *net.OpError
	switch code := api.CodeOf(err); {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case code == api.CodeNotFound:
		return api.Errorf(code, "registry has no %s %q", what, ref)
	case errors.As(err, &answer):
		return api.Errorf(code, "registry refuses %q: status %d", ref, answer.StatusCode)
	case code == api.CodeUnavailable && errors.As(err, &dial) && dial.Op == "dial":
		return api.Errorf(code, "registry of %q cannot be reached: %w", ref, dial.Err)
	case code == api.CodeUnavailable:
		return api.Errorf(code, "registry of %q does not answer as registries do", ref)
	case code == api.CodeCorrupt:
		return api.Errorf(code, "registry gives a damaged %s %q", what, ref)
	}
	return err
}
