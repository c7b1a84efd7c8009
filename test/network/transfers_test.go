package network

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// transferScript runs a command and prints the digest of its output, which it stops reading after the
// first part until a line comes; once more if the command fails.
const transferScript = `#!/bin/bash
set -o pipefail
exec 3<&0
part() { head -c 65536; echo begun >&2; read -r _ <&3; cat; }
"$@" </dev/null | part | sha256sum && exit
echo again
"$@" </dev/null | sha256sum
`

// sessionScript keeps a session of psql with a transaction, and opens another one when it is lost. psql
// reads a line when it has done what the one before says.
const sessionScript = `#!/bin/bash
psql "$1" -qAt || { echo lost; psql "$1" -qAt -c "select 'again'"; }
`

// startPostgres starts PostgreSQL in a sandbox, for connections from anywhere.
func startPostgres(n *harness.Node, ref string) {
	n.T.Helper()
	n.LongExec(ref, api.ExecRequest{User: "postgres", Env: map[string]string{"HOME": "/tmp"}, Shell: `cd /tmp && data=/var/lib/postgresql/15/main && pg=/usr/lib/postgresql/15/bin
echo 'host all all all trust' >/tmp/hba
$pg/pg_ctl -s -w -D $data -l /tmp/log start -o "-c config_file=/etc/postgresql/15/main/postgresql.conf -c hba_file=/tmp/hba -c ssl=off -c fsync=off -c listen_addresses=* -c unix_socket_directories=/tmp -c shared_buffers=4MB"`})
}

// TestForkInTransfers forks while curl downloads from a web server in another sandbox, by its name, and
// psql has a transaction and reads a table of a server outside, which is a published port of a sandbox.
func TestForkInTransfers(t *testing.T) {
	n := newProgramsNode(t, func(*harness.Node) {}, "/usr/bin/psql", "/usr/lib/postgresql/15/bin/postgres", "/usr/sbin/nginx", "/usr/bin/curl")
	createPrograms(n, "server", accept(byName("*")))
	startPostgres(n, "server")
	n.LongExec("server", api.ExecRequest{Shell: "head -c 24000000 /dev/urandom >/var/www/html/file && nginx"})
	port, err := n.Machine.PublishPort(harness.AsOwner, "server", api.PublishRequest{Port: 5432})
	if err != nil {
		t.Fatal(err)
	}
	outside := fmt.Sprintf("host.ramet.internal:%d", port.HostPort)
	createPrograms(n, "base", allow(t, "sandbox=server", outside))
	url := "postgresql://postgres@" + outside + "/postgres"
	for name, script := range map[string]string{"transfer": transferScript, "session": sessionScript} {
		n.Put("base", api.WriteRequest{FileRef: harness.At("/srv/" + name), Mode: new(uint32(0o755))}, script)
	}
	const rows = "select i, md5(i::text) from generate_series(1, 400000) i"
	digests := strings.Fields(n.LongExec("server", api.ExecRequest{Shell: "set -e; sha256sum </var/www/html/file; psql postgresql://postgres@127.0.0.1/postgres -c 'copy (" + rows + ") to stdout' >/tmp/rows; sha256sum </tmp/rows"}))

	type job struct {
		*harness.Follower
		digest string
		reset  string // how the program calls it
		pid    int
	}
	var jobs []job
	start := func(digest, reset string, argv ...string) {
		t.Helper()
		p, err := n.Machine.StartProcess(harness.AsOwner, "base", api.StartRequest{Argv: argv, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job{n.Follow("base", p.PID, 0), digest, reset, p.PID})
	}
	const lost = "server closed the connection unexpectedly" // says libpq of ECONNRESET, too
	start(digests[0], "reset by peer", "/srv/transfer", "curl", "-sS", "http://server.sandbox/file")
	start(digests[2], lost, "/srv/transfer", "psql", url, "-c", "copy ("+rows+") to stdout")
	for _, j := range jobs {
		j.Await("begun\n")
	}
	start("", lost, "/srv/session", url)
	session := jobs[len(jobs)-1]
	session.Say("create table kept (n int);\nbegin;\ninsert into kept values (7);\nselect 'open';\n")
	session.Await("open\n")

	child := n.Fork("base", 1)[0].ID
	began := time.Now()
	var theirs []job
	for _, j := range jobs {
		theirs = append(theirs, job{n.Follow(child, j.pid, 0), j.digest, j.reset, j.pid})
	}
	theirSession := theirs[len(theirs)-1]
	theirSession.Say("select 'here';\n")
	harness.Eventually(t, "a child's session", func() error {
		if out, _ := theirSession.Text(); !strings.Contains(out, "lost\nagain\n") || strings.Contains(out, "here") {
			return fmt.Errorf("it says %q", out)
		}
		return nil
	})
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the child's session ends only %v after the fork", d)
	}
	session.Say("commit;\nselect n from kept;\n")
	session.Await("open\n7\n")
	session.In.Close()
	for i, j := range append(jobs, theirs...) {
		isChild := i >= len(jobs)
		if j.digest != "" {
			j.Say("go\n")
		}
		exit := j.Exit()
		out, _ := j.Text()
		if exit.ExitCode != 0 {
			t.Errorf("job %d ends with %+v: %q", i, exit, out)
		}
		if j.digest == "" {
			continue
		}
		_, second, again := strings.Cut(out, "again\n")
		switch {
		case again != isChild || !isChild && out != "begun\n"+j.digest+"  -\n" || isChild && second != j.digest+"  -\n":
			t.Errorf("job %d says %q, and the digest is %s", i, out, j.digest)
		case isChild && !strings.Contains(out, j.reset):
			t.Errorf("job %d of the child sees no reset: %q", i, out)
		}
	}
}
