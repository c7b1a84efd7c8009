package sentry

// archBirthCalls see birthCalls: the register of thread-local variables needs no call.
var archBirthCalls []uintptr
