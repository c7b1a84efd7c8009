// Package idlepoll keeps the processors of this machine from sleeping during the first
// milliseconds of each request. It changes the power use of the whole machine, so it does
// nothing unless the user asks for it.
//
// A command that takes three milliseconds is a conversation between the threads of four
// processes, which wait for each other a hundred times. An idle processor sleeps, and waking
// it takes tens of microseconds: a virtual machine has to get it back from its host. A
// process that may write to /dev/cpu_dma_latency tells Linux how long waking may take, for as
// long as the file is open; at zero, idle processors poll
// (https://docs.kernel.org/power/pm_qos_interface.html). A Poller requests zero while a
// request is new, and nothing at other times: a machine that receives no requests sleeps as
// it did before.
//
// All processors of the machine poll, so the setting "auto" leaves large machines alone.
//
// The package must never know what is requested.
package idlepoll
