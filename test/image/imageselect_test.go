package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// An archive of docker save with two images is refused until one is named, and the
// refusal says which there are.
func TestOneOfSeveralImagesIsImported(t *testing.T) {
	n := harness.NewNode(t)
	path := filepath.Join(harness.NewDir(t), "two.tar")
	if err := os.WriteFile(path, savedImages(t, "app:1", "app:2"), 0o600); err != nil {
		t.Fatal(err)
	}
	add := func(choice string) (*api.Image, error) {
		return n.Machine.CreateImage(harness.AsOwner, api.ImageRequest{Name: "two", Path: path, Select: choice}, func(api.Progress) {})
	}
	for choice, says := range map[string]string{"": "app:1, app:2", "app:3": `no image "app:3"`} {
		_, err := add(choice)
		harness.WantCode(t, err, api.CodeInvalid)
		if !strings.Contains(err.Error(), says) {
			t.Errorf("select %q: %v", choice, err)
		}
	}
	for _, choice := range []string{"app:1", "app:2"} {
		img, err := add(choice)
		if err != nil {
			t.Fatalf("select %q: %v", choice, err)
		}
		if got := strings.Join(img.Env, " "); got != "NAME="+choice {
			t.Errorf("select %q made an image with %s", choice, got)
		}
	}
}

// savedImages is what docker save writes of images with these names, each with its
// name in the environment.
func savedImages(t *testing.T, names ...string) []byte {
	t.Helper()
	type image struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []image
	files := map[string][]byte{}
	for _, name := range names {
		layer := tarFiles(t, map[string][]byte{"name": []byte(name)})
		id := fmt.Sprintf("%x", sha256.Sum256(layer))
		files[id+"/layer.tar"] = layer
		config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","config":{"Env":["NAME=%s"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}`, runtime.GOARCH, name, id)
		named := fmt.Sprintf("%x.json", sha256.Sum256(config))
		files[named] = config
		manifest = append(manifest, image{Config: named, RepoTags: []string{name}, Layers: []string{id + "/layer.tar"}})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	files["manifest.json"] = list
	return tarFiles(t, files)
}

func tarFiles(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
