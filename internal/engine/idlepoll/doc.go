// Package idlepoll keeps the processors of this machine from sleeping while a request is
// new.
//
// A command that takes three milliseconds is a conversation of threads of four processes,
// which wait for each other a hundred times. A processor that has nothing to do
// meanwhile sleeps, and to wake it takes tens of microseconds: in a virtual machine it has
// to be given back by the host. Linux lets who may write to /dev/cpu_dma_latency say how long
// that may take, for as long as the file is open; at zero, idle processors poll
// (https://docs.kernel.org/power/pm_qos_interface.html). So that is asked for during the
// first milliseconds of each request, and at no other time: a machine on which nothing is
// asked of Ramet sleeps as it did.
//
// All processors of the machine do so, which is why it is left alone where there are many.
//
// It must never know what is requested.
package idlepoll
