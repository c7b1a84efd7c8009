// Package grant makes and checks what the E2B interface derives from API keys.
//
//	access   token of one sandbox: its commands, files and ports
//	volume   token of the files of one volume
//	upload   part of the URL to which the files of a build are sent
//
// Each names the key that it was derived from. It is valid while that key is, so removing, rotating or expiring the key
// ends it. A key gets only what its scope covers: access needs exec, the others need admin.
//
// The package must never know what a holder does with a grant.
package grant
