// Package replay lets the branches of a fork see one world: what a server answered the first
// of them, it seems to answer the others that ask the same.
//
// The same is the same method, URL and body, and those headers that choose between forms of
// an answer. Who asks the same several times gets several answers: the n-th question of a
// branch has the n-th answer, so that a branch which waits for a change sees what the first
// one saw, in the same order.
//
// Answers are kept in memory, within limits. What is too large, streams without an end, and
// answers that say that a server is in trouble, are not kept: each branch asks for itself.
//
// The package must never know which sandboxes are branches of a fork, nor how a request
// reaches its server.
package replay
