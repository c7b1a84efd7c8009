// Package artefact is the form in which a snapshot leaves its machine: an OCI image layout
// of blobs, which a file, a registry and a store hold alike. docs/snapshot-format.md
// specifies it.
//
//	Config    describes a snapshot: what it needs of a machine, and what its sandbox had
//	Manifest  names the blobs of a snapshot
//	Index     says where the frames of a part are, with the digest of each
//	Pages     writes and reads a part: sparse pages as independent frames
//	Archive   is the tar of a layout
//
// All that is read is untrusted: sizes and counts are bounded before anything is allocated,
// and every blob and frame is compared with its digest before it is used.
//
// The package must never know where snapshots are kept, or what is in a state.
package artefact
