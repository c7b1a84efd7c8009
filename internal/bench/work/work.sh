# Prints a line for each piece of work: its name, its microseconds and its exit code.
# $1 is the number of seconds after which a piece is ended.
limit=$1
run() {
	local began=$EPOCHREALTIME ended
	timeout -k 5 "$limit" /bin/bash -c "$2" >/dev/null 2>&1 </dev/null
	local code=$?
	ended=$EPOCHREALTIME
	echo "$1 $((${ended/[.,]/} - ${began/[.,]/})) $code"
}
export HOME=/root LC_ALL=C
rm -rf /root/w && mkdir -p /root/w && cd /root/w || exit 1

mkdir c
for i in {1..40}; do
	printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint f%d(int x){char b[64];snprintf(b,64,"%%d",x);return strlen(b)+%d;}\n' $i $i >c/f$i.c
done
printf 'O=$(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(O)\n\tcc -shared -o l.so $(O)\n%%.o: %%.c\n\tcc -fPIC -O1 -c -o $@ $<\n' >c/Makefile
for i in {1..50}; do
	mkdir -p g/d$i
	for j in {1..60}; do echo "line $i $j" >g/d$i/f$j; done
done
mkdir t
for i in {1..20}; do
	printf 'import pytest\n@pytest.mark.parametrize("n",range(50))\ndef test_a%d(n,tmp_path):\n    p=tmp_path/"x"; p.write_text(str(n)); assert int(p.read_text())==n\n' $i >t/test_$i.py
done
# What is only read is in memory before it is read again.
{
	python3 -c 'import json, subprocess, asyncio, sqlite3, pytest'
	cc -O1 -c -o /dev/null c/f1.c
	git --version
} >/dev/null 2>&1

run cpu 'python3 -c "
s = 0
for i in range(6000000): s += i * i"'
run spawn 'for i in {1..1000}; do /bin/true; done'
run python 'for i in {1..30}; do python3 -c "import json, subprocess, asyncio"; done'
run make 'make -C c -j2'
run git 'cd g && git init -q . && git add . && git -c user.name=a -c user.email=a@example.org commit -qm x && git status'
run find 'find /usr | wc -l'
run grep 'grep -r nosuchword /usr/lib/python3*; [ $? = 1 ]'
run pytest 'python3 -m pytest -q -p no:cacheprovider t'
run tar 'tar cf x.tar -C / usr/lib/python3 usr/include && mkdir o && tar xf x.tar -C o'
run sqlite 'python3 -c "
import sqlite3
d = sqlite3.connect(\"a.db\")
d.execute(\"create table t(a, b)\")
for i in range(400):
    d.execute(\"insert into t values(?, ?)\", (i, \"x\" * 100))
    d.commit()"'
run pipes 'python3 -c "
import os
r, w = os.pipe()
r2, w2 = os.pipe()
if os.fork() == 0:
    for _ in range(20000):
        os.read(r, 1)
        os.write(w2, b\"y\")
    os._exit(0)
for _ in range(20000):
    os.write(w, b\"x\")
    os.read(r2, 1)"'
cd / && rm -rf /root/w
