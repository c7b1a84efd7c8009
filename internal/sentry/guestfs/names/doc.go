// Package names chooses among the names of files: by patterns, and the first ones of many.
//
// It must never know where the names come from.
package names
