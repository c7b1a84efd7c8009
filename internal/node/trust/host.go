package trust

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/network/truststore"
)

// maxBundle bounds the bundle of the host, in bytes.
const maxBundle = 16 << 20

// packaged are where packages of distributions have the authorities that everybody trusts: those of
// the host that are there are none of its own, and an image has or lacks them for reasons of its own.
var packaged = []string{"/usr/share/ca-certificates", "/usr/share/pki"}

// variable names the bundle of those who run the daemon, in place of that of the machine.
const variable = "SSL_CERT_FILE"

// Named returns the bundle that path or the environment of the daemon names, or "" for that of the
// machine.
func Named(path string) string { return cmp.Or(path, os.Getenv(variable)) }

// bundle is what the host trusts, as it was when it was read.
type bundle struct {
	path string
	size int64
	at   time.Time // of its last change
	all  []byte    // in PEM
	own  []byte    // the authorities among them that do not come from packages
	// version counts how often it was read.
	version uint64
}

// refresh reads the bundle again if it was replaced. A host without one trusts nobody.
func (b *bundle) refresh(path string) error {
	candidates := truststore.HostBundles()
	if named := Named(path); named != "" {
		candidates = []string{named}
	}
	for _, path := range candidates {
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find certificates of the host: %w", err)
		}
		if path == b.path && st.Size() == b.size && st.ModTime().Equal(b.at) {
			return nil
		}
		text, err := readBundle(path)
		if err != nil {
			return fmt.Errorf("read certificates of the host: %w", err)
		}
		common, err := readPackaged(packaged)
		if err != nil {
			return err
		}
		*b = bundle{path, st.Size(), st.ModTime(), text, truststore.Missing(text, common), b.version + 1}
		return nil
	}
	if b.path != "" {
		*b = bundle{version: b.version + 1}
	}
	return nil
}

// readPackaged returns the certificates of all files in directories, as far as they have PEM.
func readPackaged(dirs []string) ([]byte, error) {
	var all []byte
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := readBundle(path)
			if all = append(append(all, text...), '\n'); len(all) > maxBundle {
				err = fmt.Errorf("they have more than %d bytes", maxBundle)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read certificates of packages in %s: %w", dir, err)
		}
	}
	return all, nil
}

func readBundle(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err == nil && len(text) > maxBundle {
		err = fmt.Errorf("%s has more than %d bytes", path, maxBundle)
	}
	return text, err
}
