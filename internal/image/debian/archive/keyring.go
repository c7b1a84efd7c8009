package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"ramet.dev/ramet/internal/image/debian/apt"
	"ramet.dev/ramet/internal/image/debian/bounded"
)

// trustedKeyFiles are the keys that apt trusts for every source without its own
// Signed-By, and the archive keyring of Debian's own package.
var trustedKeyFiles = []string{
	"etc/apt/trusted.gpg",
	"etc/apt/trusted.gpg.d/*.gpg",
	"etc/apt/trusted.gpg.d/*.asc",
	"usr/share/keyrings/debian-archive-keyring.gpg",
}

var errUnsigned = errors.New("the file is not signed")

// keyring is a set of keys and where they came from.
type keyring struct {
	keys  openpgp.EntityList
	files []string
}

// keysFor collects the keys that may sign src.
func keysFor(trust Trust, src *apt.Source) (*keyring, error) {
	k := &keyring{}
	if len(trust.Keyrings) > 0 {
		return k, k.addFiles(trust.Keyrings, true)
	}
	if src.KeyBlock != "" {
		return k, k.add(src.File, []byte(src.KeyBlock))
	}
	var files, prints []string
	for _, s := range src.SignedBy {
		if strings.HasPrefix(s, "/") {
			files = append(files, filepath.Join(trust.HostRoot, s))
		} else {
			prints = append(prints, strings.ToUpper(strings.TrimSuffix(s, "!")))
		}
	}
	if len(files) > 0 {
		if err := k.addFiles(files, true); err != nil {
			return nil, err
		}
	} else {
		for _, pattern := range trustedKeyFiles {
			found, _ := filepath.Glob(filepath.Join(trust.HostRoot, pattern))
			sort.Strings(found)
			// apt ignores broken files here too; the others may hold the key.
			_ = k.addFiles(found, false)
		}
	}
	if len(prints) > 0 {
		k.keep(prints)
	}
	return k, nil
}

func (k *keyring) addFiles(files []string, strict bool) error {
	for _, f := range files {
		data, err := bounded.ReadFile(f)
		if err == nil {
			err = k.add(f, data)
		}
		if err != nil && strict {
			return fmt.Errorf("read keyring %s: %w", f, err)
		}
	}
	return nil
}

func (k *keyring) add(file string, data []byte) error {
	read := openpgp.ReadKeyRing
	if bytes.Contains(data, []byte("-----BEGIN PGP")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keys, err := read(bytes.NewReader(data))
	if err != nil {
		return err
	}
	k.keys = append(k.keys, keys...)
	k.files = append(k.files, file)
	return nil
}

// keep drops every key whose fingerprint (its own or a subkey's) is not listed.
func (k *keyring) keep(prints []string) {
	var kept openpgp.EntityList
	for _, e := range k.keys {
		have := []string{fmt.Sprintf("%X", e.PrimaryKey.Fingerprint)}
		for _, s := range e.Subkeys {
			have = append(have, fmt.Sprintf("%X", s.PublicKey.Fingerprint))
		}
		for _, h := range have {
			if strings.Contains(" "+strings.Join(prints, " ")+" ", " "+h+" ") {
				kept = append(kept, e)
				break
			}
		}
	}
	k.keys = kept
}

// verifyInline checks the clear-signed text in data and returns exactly what
// was signed. One good signature of a known key is enough: Debian signs with
// the keys of several releases, of which a host may know only one.
func (k *keyring) verifyInline(data []byte, cfg *packet.Config) (text []byte, signer string, err error) {
	block, _ := clearsign.Decode(data)
	if block == nil {
		return nil, "", errUnsigned
	}
	sigs, err := splitSignatures(block.ArmoredSignature.Body)
	if err != nil {
		return nil, "", err
	}
	why := errUnsigned
	for _, sig := range sigs {
		e, err := openpgp.CheckDetachedSignature(k.keys, bytes.NewReader(block.Bytes), bytes.NewReader(sig), cfg)
		if err == nil {
			return block.Plaintext, fmt.Sprintf("%X", e.PrimaryKey.Fingerprint), nil
		}
		why = err
	}
	return nil, "", why
}

// splitSignatures returns each signature packet on its own, because the library
// gives its verdict on the first known key only.
func splitSignatures(r io.Reader) ([][]byte, error) {
	const maxSignatures = 32
	var out [][]byte
	packets := packet.NewReader(r)
	for {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		sig, ok := p.(*packet.Signature)
		if !ok || len(out) == maxSignatures {
			return nil, errors.New("unexpected data in the signature block")
		}
		var buf bytes.Buffer
		if err := sig.Serialize(&buf); err != nil {
			return nil, err
		}
		out = append(out, buf.Bytes())
	}
}
