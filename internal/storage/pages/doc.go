// Package pages is the store of numbered pages of 4 KiB that a sandbox's files are kept in.
//
// A page has a number that is unique along a line of descent. Each generation has a file for
// its own pages; the files of its ancestors do not change any more. A pin, of a fork or a
// snapshot, keeps all pages that exist at its time: each page is born in an epoch, a pin ends
// an epoch, and a page may be changed in place only if it was born after the youngest pin
// (pins.go). A page that neither the present tree nor a pin needs is free: it is used again,
// and its space is given back to the host (alloc.go, freespace.go).
//
// pageFiles knows where pages are, on disk and in memory; Store knows which are free.
//
// The package must never know what is in a page.
package pages
