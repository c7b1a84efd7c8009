package process

// archCalls see calls: newer architectures lack all of these but the first, which has another name there.
var archCalls = []string{"newfstatat", "readlink", "epoll_wait", "poll"}
