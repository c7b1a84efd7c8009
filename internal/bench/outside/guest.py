# What runs in sandboxes of both sides. network prints the result of each operation as JSON.
import json, select, socket, statistics, time
def network(host, port, closed, seconds):
    to = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    out = {}
    def dial(word):
        s = socket.create_connection(to)
        s.sendall(word)
        return s
    def micros(count, fn):
        took = []
        for _ in range(count):
            began = time.perf_counter()
            fn(took, began)
        return statistics.median(took) * 1e6
    buf, block = bytearray(256 << 10), bytes(256 << 10)
    def download(n):
        conns = {s.fileno(): s for s in [dial(b"d") for _ in range(n)]}
        poll = select.epoll()
        for fd, s in conns.items():
            s.setblocking(False)
            poll.register(fd, select.EPOLLIN)
        total, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for fd, _ in poll.poll():
                got = conns[fd].recv_into(buf)
                if not got:
                    raise EOFError("the server ended a download")
                total += got
        took = time.perf_counter() - began
        for s in conns.values():
            s.close()
        return total * 8 / 1e9 / took
    def upload(n):
        conns = {s.fileno(): s for s in [dial(b"u") for _ in range(n)]}
        poll = select.epoll()
        for fd, s in conns.items():
            s.setblocking(False)
            poll.register(fd, select.EPOLLOUT)
        total, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for fd, _ in poll.poll():
                total += conns[fd].send(block)
        arrived = 0
        for s in conns.values():
            s.setblocking(True)
            s.shutdown(socket.SHUT_WR)
        for s in conns.values():
            arrived += int(s.makefile().readline())  # how many bytes came
            s.close()
        took = time.perf_counter() - began
        if arrived != total:
            raise EOFError("%d bytes arrived of %d" % (arrived, total))
        return total * 8 / 1e9 / took
    def request():
        s = dial(b"e")
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        def once(took, began):
            s.sendall(b"x" * 64)
            if len(s.recv(64, socket.MSG_WAITALL)) != 64:
                raise EOFError("the server ended a conversation")
            took.append(time.perf_counter() - began)
        median = micros(int(1000 * seconds), once)
        s.close()
        return median
    def connect(took, _):
        s = socket.socket()
        began = time.perf_counter()
        s.connect(to)
        took.append(time.perf_counter() - began)
        s.close()
    def denied(took, _):
        s = socket.socket()
        began = time.perf_counter()
        try:
            s.connect((to[0], closed))
        except OSError:
            took.append(time.perf_counter() - began)
        else:
            raise ConnectionError("a connection to port %d was not denied" % closed)
        s.close()
    out["download"], out["upload"] = download(1), upload(1)
    out["download-64"], out["upload-64"] = download(64), upload(64)
    out["request"], out["connect"] = request(), micros(int(150 * seconds), connect)
    if closed:
        out["denied"] = micros(int(150 * seconds), denied)
    print(json.dumps(out))
def hold(host, port, count):
    global held
    held = [socket.create_connection((host, port)) for _ in range(count)]
    for s in held:
        s.sendall(b"ex")
        if s.recv(1) != b"x":
            raise EOFError("the server ended a conversation")
    print(count)
