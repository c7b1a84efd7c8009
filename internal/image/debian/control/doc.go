// Package control reads Debian's control data: stanzas of fields, names, versions and
// relations between packages.
//
// The package must never know where the text comes from, nor what is done about it.
package control
