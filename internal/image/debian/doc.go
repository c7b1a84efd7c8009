// Package debian builds a Debian root file system as an ordinary user: no
// root, no chroot, no Debian tools on the host.
//
// [Build] reads the host's own apt sources, verifies the signed release files
// and through them the package indexes and packages, resolves a minimal set
// (every essential package plus what the caller includes), and writes one tar
// stream of a merged-/usr root file system in which every package is in dpkg's
// state "unpacked". The commands of [ConfigureSteps], run later as root inside
// a sandbox made of that tree, bring the packages to "installed".
//
// Trust: nothing that came over the network is parsed beyond what its signature
// or digest check needs before that check has passed, and every read has an
// upper bound. Maintainer scripts are never run here.
//
// The package must never know what a sandbox is, how an image is stored or who
// runs the steps, and it never names a mirror: hosts come from apt's
// configuration or from the caller.
package debian
