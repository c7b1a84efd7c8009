package artefact

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

const (
	// SignatureType is the type of the artifact that a signature is in a registry.
	SignatureType = "application/vnd.ramet.signature.v1"
	// SignatureKey annotates a manifest, where it is named, with a signature of it.
	SignatureKey = "dev.ramet.signature"

	keyPrefix = "ramet-ed25519:"
	// signedPrefix comes before the digest in what is signed, so that a signature of a snapshot
	// is one of nothing else.
	signedPrefix = "ramet snapshot v1\n"
)

var encoding = base64.RawURLEncoding.Strict()

// FormatKey returns a public key as text.
func FormatKey(key ed25519.PublicKey) string { return keyPrefix + encoding.EncodeToString(key) }

// ParseKey reads a public key.
func ParseKey(text string) (ed25519.PublicKey, error) {
	encoded, ok := strings.CutPrefix(text, keyPrefix)
	key, err := encoding.DecodeString(encoded)
	if !ok || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, api.Invalid("trust", "%q is not a key as 'ramet key' shows it", cut(text))
	}
	return key, nil
}

// Sign returns the signature of a manifest with a digest: the public key and what it proves.
func Sign(key ed25519.PrivateKey, digest string) string {
	signature := ed25519.Sign(key, []byte(signedPrefix+digest))
	return FormatKey(key.Public().(ed25519.PublicKey)) + ":" + encoding.EncodeToString(signature)
}

// Signer returns the key that has signed a manifest, as text. ok is false if the signature is
// none of it.
func Signer(signature, digest string) (key string, ok bool) {
	i := strings.LastIndexByte(signature, ':')
	if i < 0 || len(signature) > 1<<10 {
		return "", false
	}
	public, err := ParseKey(signature[:i])
	if err != nil {
		return "", false
	}
	proof, err := encoding.DecodeString(signature[i+1:])
	if err != nil || !ed25519.Verify(public, []byte(signedPrefix+digest), proof) {
		return "", false
	}
	return FormatKey(public), true
}

// Trusted refuses a snapshot that no key of keys has signed.
func (h *Head) Trusted(keys []string) error {
	for _, s := range h.Signatures {
		if key, ok := Signer(s, h.Digest); ok && slices.Contains(keys, key) {
			return nil
		}
	}
	if len(h.Signatures) == 0 {
		return api.Errorf(api.CodeForbidden, "the snapshot is not signed: have it packed with --sign")
	}
	return api.Errorf(api.CodeForbidden, "no trusted key has signed the snapshot: name its key with --trust, if you trust it")
}

// SignatureManifest returns the manifest of a signature of a manifest, for registries.
func SignatureManifest(signature string, of Descriptor) []byte {
	m := Manifest{
		SchemaVersion: 2, MediaType: manifestType, ArtifactType: SignatureType, Config: emptyBlob, Layers: []Descriptor{emptyBlob}, Subject: &of,
		Annotations: map[string]string{SignatureKey: signature},
	}
	b, err := m.Encode()
	if err != nil {
		return nil // texts always encode
	}
	return b
}

// emptyBlob is what a manifest has in place of a blob, as the OCI defines it.
var emptyBlob = Descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: Digest([]byte(EmptyBlob)), Size: int64(len(EmptyBlob))}

// EmptyBlob is the contents of the blob that stands for none.
const EmptyBlob = "{}"
