package choose

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/cpu"

	"ramet.dev/ramet/api"
)

// Platform is the platform of sandboxes: they run on the processor of the host.
var Platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// referenceType is the annotation of manifests that describe another one, as attestations do.
const referenceType = "vnd.docker.reference.type"

// IsImage reports whether an entry of an index may be an image or an index of images. Signatures,
// attestations and other artefacts are not.
func IsImage(d *v1.Descriptor) bool {
	known := d.MediaType.IsIndex() || d.MediaType.IsImage() || d.MediaType == ""
	return known && (d.ArtifactType == "" || isConfig(types.MediaType(d.ArtifactType))) && d.Annotations[referenceType] == ""
}

// isConfig reports whether a type is that of an image's configuration, which some programs repeat as
// the type of the artefact.
func isConfig(t types.MediaType) bool { return t == types.OCIConfigJSON || t == types.DockerConfigJSON }

// Runs reports whether an entry is for the platform of sandboxes, of whatever variant. An entry
// without a platform may be.
func Runs(d *v1.Descriptor) bool {
	p := d.Platform
	return p == nil || p.OS == "" || p.OS == Platform.OS && p.Architecture == Platform.Architecture
}

// Best returns those of the entries whose variant is the highest that this processor runs, in their
// order. Errors: api.CodeUnsupported if it runs none of them.
func Best(entries []v1.Descriptor) ([]v1.Descriptor, error) {
	return best(Platform.Architecture, entries, Level())
}

func best(arch string, entries []v1.Descriptor, most int) ([]v1.Descriptor, error) {
	highest := 0
	var variants []string
	for _, d := range entries {
		variant := variantOf(&d)
		if n := levelOf(arch, variant); n > highest && n <= most {
			highest = n
		}
		if !slices.Contains(variants, variant) {
			variants = append(variants, variant)
		}
	}
	if highest == 0 && len(entries) > 0 {
		return nil, api.Errorf(api.CodeUnsupported, "image is for linux/%s/%s: this processor runs up to v%d", arch, strings.Join(variants, ", "), most)
	}
	return slices.DeleteFunc(slices.Clone(entries), func(d v1.Descriptor) bool { return levelOf(arch, variantOf(&d)) != highest }), nil
}

func variantOf(d *v1.Descriptor) string {
	if d.Platform == nil {
		return ""
	}
	return d.Platform.Variant
}

// levels are the variants of an architecture that have a name: the first, which an image without a variant is for,
// and the last that is known.
var levels = map[string]struct{ first, last int }{"amd64": {1, 4}, "arm64": {8, 9}}

// levelOf returns the level of a variant, which is the first of its architecture if it has no name. Unknown
// variants have a level that no processor has.
func levelOf(arch, variant string) int {
	known, ok := levels[arch]
	if !ok {
		known.first, known.last = 1, 1
	}
	if variant == "" {
		return known.first
	}
	for n := known.first; n <= known.last; n++ {
		if variant == fmt.Sprintf("v%d", n) {
			return n
		}
	}
	return known.last + 1
}

// Level returns the highest level that a sandbox has on this processor. A level has all features of those below it.
//
// On x86-64 it is that of the psABI, 1 to 4. Features that come with the named ones in every processor are not asked
// for. On arm64 it is 8: a sandbox has no SVE, which level 9 begins with.
func Level() int {
	if Platform.Architecture != "amd64" {
		return levelOf(Platform.Architecture, "")
	}
	x := &cpu.X86
	switch {
	case !x.HasSSE3 || !x.HasSSSE3 || !x.HasSSE41 || !x.HasSSE42 || !x.HasPOPCNT || !x.HasCX16:
		return 1
	case !x.HasAVX || !x.HasAVX2 || !x.HasBMI1 || !x.HasBMI2 || !x.HasFMA || !x.HasOSXSAVE:
		return 2
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512CD || !x.HasAVX512DQ || !x.HasAVX512VL:
		return 3
	}
	return 4
}
