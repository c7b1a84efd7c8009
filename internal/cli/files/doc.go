// Package files has the commands that copy files between this machine and a sandbox: cp and export.
//
// It never writes outside of the directory that the user names, whatever the archive of a sandbox
// has in it.
package files
