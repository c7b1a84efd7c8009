// Package restapi has programs that nobody here wrote judge the REST interface: linters of
// its OpenAPI document, generators of clients, and a generator of requests. They are
// downloaded once, at the versions that testdata names, and kept in .cache of the
// repository. Where that is not possible their tests are skipped, and say why.
//
// The daemon that they talk to is the real one, as a process of its own that serves on
// loopback only, with real sandboxes.
package restapi
