"""Answers each line with the process ids of ssh-agent and two servers, a signature of a
text that is always the same, for which ECDSA draws a number, and the cookies that the
servers have drawn for the exchange of keys. The first one starts itself again for each
connection, the second one does not."""
import hashlib
import os
import socket
import struct
import subprocess
import sys

AGENT = "/tmp/agent"
IDENTITIES, SIGN = 11, 13  # requests to an agent
PORTS = 7002, 7003


def exactly(s, count):
    """Returns so many bytes of a connection."""
    data = b""
    while len(data) < count:
        part = s.recv(count - len(data))
        if not part:
            raise EOFError(f"{len(data)} bytes of {count}")
        data += part
    return data


def ask(request):
    """Returns the agent's answer, without its type."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(AGENT)
        s.sendall(string(request))
        answer = exactly(s, struct.unpack(">I", exactly(s, 4))[0])
    return answer[1:]


def own(p):
    """Returns the process id and the name of a program that runs."""
    with open(f"/proc/{p.pid}/stat") as f:
        return "".join(f.read().split()[:2])


def string(data):
    return struct.pack(">I", len(data)) + data


def signature():
    answer = ask(bytes([IDENTITIES]))
    size = struct.unpack(">I", answer[4:8])[0]  # after the number of keys
    key = answer[8 : 8 + size]
    signed = ask(bytes([SIGN]) + string(key) + string(b"the same") + struct.pack(">I", 0))
    return hashlib.sha256(signed).hexdigest()


def cookie(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(b"SSH-2.0-test\r\n")
        while exactly(s, 1) != b"\n":  # the other one's version
            pass
        exactly(s, 6)  # lengths of the packet and its padding, and its type
        return exactly(s, 16).hex()


def start(*command):
    """Starts a program and waits for what it says once it listens."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    p.stdout.readline()
    return p


os.makedirs("/run/sshd", exist_ok=True)
programs = [start("ssh-agent", "-D", "-a", AGENT)]
for port, options in zip(PORTS, ([], ["-r"])):
    programs.append(start("/usr/sbin/sshd", "-D", "-e", "-o", f"ListenAddress=127.0.0.1:{port}", *options))
subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", "/tmp/key"], check=True)
subprocess.run(["ssh-add", "-q", "/tmp/key"], env={**os.environ, "SSH_AUTH_SOCK": AGENT}, check=True)
for _ in sys.stdin:
    print("/".join(map(own, programs)), signature(), *map(cookie, PORTS), flush=True)
