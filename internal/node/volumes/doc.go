// Package volumes has the volumes of a node: directories that outlive sandboxes, and that several
// of them share. It keeps their records, does what sentries ask of their files, and reads and
// changes files for clients.
//
// A volume has the states that follow from its record: it is there or not. It cannot be removed
// while a sandbox has it, nor be given to a sandbox while it is being removed (see Use).
//
// Lock order: Volumes.mu, those of package storage/volume.
//
// The package must never know how a sandbox is made, nor what a guest does with files.
package volumes
