"""Writes to an SQLite database in WAL mode and checks it.

Two processes move money between accounts and keep a log of the last KEEP
moves of each. Whenever one looks, the sum of all accounts is what it was and
the log of a writer has no gap.
"""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

DIR = "/srv/sqlite"
PATH = DIR + "/data.db"
ACCOUNTS, MONEY, WRITERS, KEEP = 100, 1000, 2, 200


def connect():
    c = sqlite3.connect(PATH, timeout=60, isolation_level=None)
    c.execute("PRAGMA journal_mode=WAL")
    c.execute("PRAGMA wal_autocheckpoint=30")
    return c


def start():
    os.makedirs(DIR)
    c = connect()
    c.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)")
    c.execute("CREATE TABLE log (writer INTEGER, n INTEGER, data BLOB, PRIMARY KEY (writer, n))")
    c.execute("CREATE TABLE writer (id INTEGER PRIMARY KEY, n INTEGER)")
    c.executemany("INSERT INTO account VALUES (?, ?)", [(i, MONEY) for i in range(ACCOUNTS)])
    c.executemany("INSERT INTO writer VALUES (?, 0)", [(w,) for w in range(WRITERS)])
    for w in range(WRITERS):
        subprocess.Popen([sys.executable, __file__, "write", str(w)], start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(f"{DIR}/errors", "w"))


def step(c, writer, rng):
    a, b, x = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randrange(10)
    c.execute("BEGIN IMMEDIATE")
    (n,) = c.execute("SELECT n + 1 FROM writer WHERE id = ?", (writer,)).fetchone()
    c.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (x, a))
    c.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (x, b))
    c.execute("INSERT INTO log VALUES (?, ?, ?)", (writer, n, rng.randbytes(rng.randrange(3000))))
    c.execute("DELETE FROM log WHERE writer = ? AND n <= ?", (writer, n - KEEP))
    c.execute("UPDATE writer SET n = ? WHERE id = ?", (n, writer))
    c.execute("COMMIT")
    return n


def write(writer):
    with open(f"{DIR}/pid-{writer}", "w") as f:
        f.write(str(os.getpid()))
    c = connect()
    if writer == 1:
        c.execute("PRAGMA mmap_size=67108864")  # this one reads the file as memory
    rng = random.Random(writer)
    while not os.path.exists(DIR + "/stop"):
        n = step(c, writer, rng)
        if n % 100 == 0:
            c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        time.sleep(0.001)  # others want to look as well


def progress():
    (n,) = connect().execute("SELECT sum(n) FROM writer").fetchone()
    print(n)


def check():
    c = connect()
    for _ in range(2):  # before and after all is in the database itself
        result = c.execute("PRAGMA integrity_check").fetchall()
        assert result == [("ok",)], result
        c.execute("BEGIN")
        (total,) = c.execute("SELECT sum(balance) FROM account").fetchone()
        assert total == ACCOUNTS * MONEY, total
        for w, n in c.execute("SELECT id, n FROM writer").fetchall():
            count, least, most = c.execute("SELECT count(*), min(n), max(n) FROM log WHERE writer = ?", (w,)).fetchone()
            assert count == min(n, KEEP), (w, n, count)
            assert n == 0 or (least, most) == (max(1, n - KEEP + 1), n), (w, n, least, most)
        c.execute("COMMIT")
        c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert os.path.getsize(DIR + "/errors") == 0, open(DIR + "/errors").read()


def pids():
    return [int(open(f"{DIR}/pid-{w}").read()) for w in range(WRITERS)]


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait():
    while any(runs(p) for p in pids()):
        time.sleep(0.01)


def stop():
    open(DIR + "/stop", "w").close()
    wait()


def crash():
    for p in pids():
        os.kill(p, signal.SIGKILL)
    wait()
    step(connect(), 0, random.Random())  # the database is of use again


if sys.argv[1] == "write":
    write(int(sys.argv[2]))
else:
    {"start": start, "progress": progress, "check": check, "stop": stop, "crash": crash}[sys.argv[1]]()
