// Package hostsfile edits the text of /etc/hosts: the line with the names of the sandbox itself.
//
// The package must never know how the file is read or written.
package hostsfile
