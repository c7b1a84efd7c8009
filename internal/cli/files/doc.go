// Package files is the commands that copy files between this machine and a sandbox: cp and export.
//
// It never writes outside of the directory that the user names, whatever an archive of a sandbox
// says.
package files
