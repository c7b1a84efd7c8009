// Package stock has what a comparison with stock runsc needs besides its containers: the files of a
// sandbox as the root of a container, the version of a runsc, and network namespaces with a link
// between them.
//
// It must never know what is measured.
package stock
