// Package envd answers what clients of E2B ask the agent in a sandbox: processes, files and changes of
// files, by the Connect protocol with JSON, and contents of files by HTTP. Nothing of it runs in the
// sandbox.
//
// The messages are those of the services process.Process and filesystem.Filesystem, as clients send them in
// version 0.6 of the agent. They are plain structs here: the JSON is the contract.
//
// The package must never know who may call: it is told which sandbox is meant, and as which user.
package envd
