package choose

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"ramet.dev/ramet/api"
)

func entry(variant string) v1.Descriptor {
	return v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: Platform.Architecture, Variant: variant}}
}

// TestBest chooses among variants, whatever their order.
func TestBest(t *testing.T) {
	for _, c := range []struct {
		arch     string
		variants string
		most     int
		want     string // variants of what is chosen
	}{
		{"amd64", "v4 v3 v1", 3, "v3"}, {"amd64", "v1 v3 v4", 4, "v4"}, {"amd64", "v4 v1", 3, "v1"}, {"amd64", "v3 v2 ", 1, ""},
		{"amd64", "v3  v9", 3, "v3"}, {"amd64", "v1 ", 2, "v1 "}, {"amd64", "v2 v2", 2, "v2 v2"}, {"amd64", "v8", 4, "refused"},
		{"amd64", "v4", 3, "refused"},
		{"arm64", "v8 ", 8, "v8 "}, {"arm64", "v9 v8", 8, "v8"}, {"arm64", "v9", 8, "refused"}, {"arm64", "v1", 8, "refused"},
		{"riscv64", " v2", 1, ""},
	} {
		var entries []v1.Descriptor
		for v := range strings.SplitSeq(c.variants, " ") {
			entries = append(entries, entry(v))
		}
		found, err := best(c.arch, entries, c.most)
		var got []string
		for _, d := range found {
			got = append(got, d.Platform.Variant)
		}
		if c.want == "refused" {
			if api.CodeOf(err) != api.CodeUnsupported {
				t.Errorf("%s %q up to v%d: %q, %v", c.arch, c.variants, c.most, got, err)
			}
		} else if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s %q up to v%d: %q, %v, want %q", c.arch, c.variants, c.most, got, err, c.want)
		}
	}
	if n := Level(); n < levelOf(Platform.Architecture, "") || n > 8 {
		t.Errorf("this processor has level %d", n)
	}
}

// TestArtefactsAreNoImages leaves out what an index has beside images.
func TestArtefactsAreNoImages(t *testing.T) {
	image, index, plain := entry(""), entry(""), v1.Descriptor{}
	index.MediaType = types.OCIImageIndex
	image.ArtifactType = string(types.OCIConfigJSON)
	signature, attestation, other, foreign := entry(""), entry(""), entry(""), entry("")
	signature.ArtifactType = "application/vnd.example.signature"
	attestation.Annotations = map[string]string{referenceType: "attestation-manifest"}
	other.MediaType = types.OCIConfigJSON
	foreign.Platform = &v1.Platform{OS: "linux", Architecture: "riscv64"}
	for name, c := range map[string]struct {
		d           v1.Descriptor
		image, runs bool
	}{
		"image": {image, true, true}, "index": {index, true, true}, "without media type and platform": {plain, true, true},
		"signature": {signature, false, true}, "attestation": {attestation, false, true}, "configuration": {other, false, true},
		"another architecture": {foreign, true, false},
	} {
		if IsImage(&c.d) != c.image || Runs(&c.d) != c.runs {
			t.Errorf("%s: image %v, runs %v", name, IsImage(&c.d), Runs(&c.d))
		}
	}
}
