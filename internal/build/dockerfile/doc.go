// Package dockerfile reads Dockerfiles and plans builds: which stages are needed, which steps change files, and by
// which key the state after each step is found again. BuildKit's parser reads the text.
//
// A plan is complete before the first step runs. Unsupported instructions are refused with file and line.
//
// The package must never read a file, nor know how a step is carried out.
package dockerfile
