// Package portable has snapshots leave this machine and arrive at it.
//
//	Pack    writes a snapshot as an artefact, with the generations that it refers to
//	Unpack  makes a snapshot of an artefact
//
// A generation is a part of an artefact, named by the digest of its pages, so snapshots of
// one chain have the same blobs. On arrival a part that a snapshot of the same tenant has is
// referred to, not written again. The other parts belong to the snapshot that brings them.
//
// What arrives is untrusted. It is judged by its configuration before its pages are
// written, begins a tree of its own, and controls nothing: its state is loaded by a
// confined sentry, as every state is. A snapshot is listed when all of it is on disk.
//
// The package must never know how artefacts are encoded, or how a snapshot is frozen or
// restored.
package portable
