// Command talker keeps a conversation with a server, by the clients that programs in sandboxes use:
// WebSocket, HTTP/2, gRPC, long polling. It sends numbered messages and checks that each answer is the
// next one, so that nothing is lost or comes twice. After a reset it begins again, and says so.
//
// It must never know what a sandbox is.
package main
