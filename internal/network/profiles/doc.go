// Package profiles knows network documents by name: two that are built in, those that the user
// keeps as files in one directory, and those that a program derives when they are asked for. It
// puts together the Spec that a document with profiles is compiled from.
//
// The package must never know what runs under a profile, nor how a derived one comes about.
package profiles
