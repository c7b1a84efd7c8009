// Package wire is the protocol between a sentry and the gateway: the messages about the flows
// of one sandbox, and the channel that carries them.
//
// A channel is a SOCK_SEQPACKET pair, one for each sandbox; each packet is one message: a
// header of fixed size and a payload. Bytes of flows never travel on the channel, but on a
// socket pair for each flow, whose end comes as a descriptor.
//
//	sentry                               gateway
//	  Dial{flow, protocol, address}  ->
//	                                 <-  Verdict{flow, code} + descriptor with CodeOK
//	  Reset{flow}  (the guest reset) ->
//	                                 <-  Reset{flow}  (the server reset)
//	  Closed{flow}                   ->
//	                                 <-  Closed{flow}  (the server ended its stream)
//
//	  Question{flow, DNS message}    ->
//	                                 <-  Answer{flow, DNS message}
//	  Echo{flow, address, payload}   ->
//	                                 <-  Echoed{flow, payload}, or Verdict{flow, code}
//
//	                                 <-  Deliver{flow, port} + descriptor
//	  Accepted{flow}, or Refused     ->
//	  Reset{flow}, Closed{flow}      ->
//	                                 <-  Reset{flow}, Closed{flow}
//
// Each side numbers the flows that it begins: those of a sentry are below FirstInbound, those
// of the gateway from it on. A number is free again when the flow has ended: with Closed or
// Reset of the sentry, with a Verdict other than CodeOK, with Refused, or with the answer.
//
// The descriptor of TCP is a SOCK_STREAM socket. Shutting it down for writing is the guest's FIN.
// Its end alone is not the server's: the host closes the pairs of a gateway that is killed, and
// a guest would take half a file for a whole one. The gateway sends Closed, or Reset, before it
// ends its side of the pair: the sentry reads the rest and then ends, or resets, the guest's
// connection. Without either, when the channel has ended, the sentry resets it.
//
// The descriptor of UDP is a SOCK_SEQPACKET socket whose packets are datagrams. An empty datagram
// cannot be told from the end there, so neither side sends one.
//
// A sentry is not believed: Decode refuses what the format does not allow, and a Channel
// refuses messages of the wrong direction and descriptors from a sentry. All descriptors do
// not block. The package makes no system call on a channel but sendmsg and recvmsg, which is
// what the filter of a sentry lets through, and waits in the poller of the Go runtime.
//
// The package must never know what a policy is, nor import gVisor.
package wire
