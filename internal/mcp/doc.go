// Package mcp gives agents sandboxes, by the Model Context Protocol: ten tools, whose names begin with
// ramet_, and resources for what is too long for an answer.
//
//	agent's program ──► stdio, or HTTP with a token ──► tools ──► client ──► daemon
//
// There is no state between two calls: tools take the ids and names of sandboxes, and numbers of processes.
// Rights are those of the client that a server is made for; over HTTP each request has its caller's token.
//
// What a tool answers is bounded. What was left out is in the sandbox, or in the output that the daemon keeps,
// and the answer says how to get it. An error says what to do next.
//
// The package must never know how a daemon does its work, nor decide about rights.
package mcp
