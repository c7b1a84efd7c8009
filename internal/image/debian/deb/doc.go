// Package deb opens package files: ar archives with a control archive and a data archive.
//
// The package must never know where the files of a package go.
package deb
