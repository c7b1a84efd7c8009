// Package archive reads signed Debian archives: it fetches release files, verifies their
// signatures, and reads the package indexes that a verified release file promises.
//
// Nothing that came over the network is parsed before its signature or digest was checked,
// except for what that check needs. The package must never choose which packages are
// installed, nor look into one.
package archive
