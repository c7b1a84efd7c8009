//go:build !amd64

package guestinit

// The undefined name is the error message: the sandboxes' init is x86-64 code.
var _ = ramet_sandboxes_need_GOARCH_amd64
