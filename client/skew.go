package client

import (
	"net/http"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// checkInterface returns a CodeUnsupported error if an answer says that the daemon has another
// interface than the client. A daemon that says nothing is older than the question.
func checkInterface(h http.Header) error {
	theirs := h.Get(httpwire.InterfaceHeader)
	if theirs == "" || api.InterfaceMajor(theirs) == api.InterfaceMajor(api.InterfaceVersion) {
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "call daemon: it has version %.20q of the interface, and this client has %s: use a client of the release of the daemon, or another daemon", theirs, api.InterfaceVersion)
}

// explainSkew adds to a problem that the daemon does not know what it is asked for, if it is older
// than the client. A daemon of this version knows it, and the caller has made a mistake.
func explainSkew(p *httpwire.Problem, h http.Header) {
	route := p.Code == api.CodeNotFound && strings.HasPrefix(p.Detail, `no route "`)
	member := p.Code == api.CodeInvalid && (strings.HasSuffix(p.Detail, "unexpected property") || strings.HasPrefix(p.Detail, "there is no query parameter "))
	theirs := h.Get(httpwire.InterfaceHeader)
	if !route && !member || theirs == api.InterfaceVersion {
		return
	}
	if theirs == "" {
		theirs = "none that it tells"
	}
	p.Detail += "; the daemon does not know it: its version of the interface is " + theirs + ", and that of this client " + api.InterfaceVersion
}
