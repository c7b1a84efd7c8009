// Package debian builds a Debian root file system as an ordinary user: no
// root, no chroot, no Debian tools on the host.
//
// [Build] composes the packages below it. Package apt reads the host's own sources;
// archive verifies the signed release files and reads their indexes; solve selects a
// minimal set, which is every essential package and those that the caller includes;
// deb opens the packages, and dpkg writes a tar stream of a merged-/usr root file system
// in which every package is in dpkg's state "unpacked". The commands of [ConfigureSteps],
// run later as root inside a sandbox made of that tree, bring the packages to "installed".
//
// Trust: nothing that came over the network is parsed before its signature or digest was
// checked, except for what that check needs, and every read has an upper bound.
// Maintainer scripts are never run here.
//
// The package must never know what a sandbox is, how an image is stored or who
// runs the steps, and it never names a mirror: hosts come from apt's
// configuration or from the caller.
package debian
