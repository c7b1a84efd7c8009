// Package control is how a daemon tells the gateway which sandboxes there are: the calls, the server
// that answers them and the client that makes them.
//
// The socket is one of SOCK_SEQPACKET in the runtime directory of the daemon. A connection carries one
// call, in the packets of package engine/wire:
//
//	daemon                                        gateway
//	  Call{hello | list | stats | test | end}  ->
//	                                           <-  Reply, or Fail
//	  Call{add} + registration, channel        ->
//	                                           <-  Reply: its policy is in force
//	  Call{replace} + registration             ->
//	                                           <-  Reply: flows that it does not allow are cut
//	  Call{remove}                             ->
//	                                           <-  Reply: nothing of it is left
//	  Call{log}                                ->
//	                                           <-  Item… until the daemon closes the connection
//	  Call{drop | drop_all}                    ->
//	                                           <-  Reply
//	  Call{release | release_all}              ->
//	   + registration, if not the sandbox's    <-  Reply, when all requests were answered
//	  Call{held}                               ->
//	                                           <-  Item…, Reply
//	  Call{watch}                              ->
//	                                           <-  Reply; the end of the gateway closes the connection
//
// A registration comes as a file in memory, because a policy may be larger than a packet. That file has
// the values of secrets, which no packet, log or error has.
//
// The package must never know how the gateway is started, nor what a daemon does with sandboxes.
package control
