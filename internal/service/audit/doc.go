// Package audit has the entry of the audit that is being made for a request. Who begins the work
// puts a note into the context; the packages that do the work find it there and add the result.
//
// The package must never know where entries are written. A note has ids, numbers and digests, and
// never the contents of requests: commands, environments, files and tokens.
package audit
