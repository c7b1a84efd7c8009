// Package dpkg writes a root file system as dpkg leaves it after it has unpacked packages:
// a merged-/usr tree, and dpkg's database, in one tar stream.
//
// The package never runs a maintainer script. It must never know where packages come from.
package dpkg
