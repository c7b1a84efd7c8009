package files

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"ramet.dev/ramet/api"
)

// ageIntro begins a file that is encrypted with age.
const ageIntro = "age-encryption.org/v1\n"

// maxKeys bounds a file of recipients or identities.
const maxKeys = 1 << 20

// recipients parses the values of --encrypt-to: recipients of age, or files of them.
func recipients(values []string) (list []age.Recipient, err error) {
	for _, v := range values {
		text := v
		if !strings.HasPrefix(v, "age1") {
			b, err := readKeys(v)
			if err != nil {
				return nil, api.Invalid("encrypt-to", "%q is no recipient of age, nor a file of them: %w", v, err)
			}
			text = string(b)
		}
		more, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil {
			return nil, api.Invalid("encrypt-to", "%q: %w", v, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

func readKeys(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKeys))
}

// encrypted calls write with a writer to w that encrypts for recipients, if there are any.
func encrypted(w io.Writer, to []age.Recipient, write func(io.Writer) error) error {
	if len(to) == 0 {
		return write(w)
	}
	out, err := age.Encrypt(w, to...)
	if err != nil {
		return api.Invalid("encrypt-to", "%w", err)
	}
	buffered := bufio.NewWriterSize(out, 256<<10)
	if err := write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return out.Close()
}

// decrypted returns what is in r, which may be encrypted with age. identities are the files
// of --identity.
func decrypted(r io.Reader, identities []string) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	intro, err := in.Peek(len(ageIntro))
	if err != nil || !bytes.Equal(intro, []byte(ageIntro)) {
		return in, nil // of what else it is, the daemon is the judge
	}
	if len(identities) == 0 {
		return nil, api.Invalid("identity", "the file is encrypted: name the file of your age identity with --identity")
	}
	var known []age.Identity
	for _, path := range identities {
		b, err := readKeys(path)
		if err != nil {
			return nil, api.Invalid("identity", "%w", err)
		}
		more, err := age.ParseIdentities(bytes.NewReader(b))
		if err != nil {
			return nil, api.Invalid("identity", "%q: %w", path, err)
		}
		known = append(known, more...)
	}
	out, err := age.Decrypt(in, known...)
	if err != nil {
		return nil, api.Invalid("identity", "the file is not for this identity: %w", err)
	}
	return out, nil
}
