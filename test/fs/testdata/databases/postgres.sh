# Runs PostgreSQL's own benchmark and checks the database with its own tools.
set -eu
PATH=/usr/lib/postgresql/15/bin:$PATH
data=/var/lib/postgresql/15/main
run=/tmp/postgres-run
export PGHOST=/tmp

up() {
	pg_ctl -s -w -D $data -l $run/log start -o "-c config_file=/etc/postgresql/15/main/postgresql.conf -c ssl=off \
		-c unix_socket_directories=/tmp -c shared_buffers=4MB -c max_wal_size=32MB -c checkpoint_timeout=30s"
}

# gone waits until no process has one of the names.
gone() {
	while grep -qsE "^($1)$" /proc/[0-9]*/comm; do sleep 0.01; done
}

case $1 in
start)
	mkdir -p $run
	up
	createdb bench
	psql -q bench -c 'create extension amcheck'
	pgbench -q -i -s 1 bench 2>/dev/null
	setsid pgbench -c 2 -R 80 -T 3600 bench >$run/bench 2>&1 </dev/null &
	;;
progress)
	psql -At bench -c 'select count(*) from pgbench_history'
	;;
check)
	psql -At bench <<-'SQL' >$run/sums
		begin isolation level repeatable read;
		select sum(abalance) from pgbench_accounts;
		select sum(bbalance) from pgbench_branches;
		select sum(tbalance) from pgbench_tellers;
		select sum(delta) from pgbench_history;
	SQL
	[ "$(grep -v BEGIN $run/sums | uniq | wc -l)" = 1 ] || { cat $run/sums && false; }
	grep -qsx pgbench /proc/[0-9]*/comm || pg_amcheck --heapallindexed bench
	! grep -E 'PANIC|invalid page|could not read' $run/log
	;;
stop)
	kill "$(grep -lsx pgbench /proc/[0-9]*/comm | cut -d/ -f3)"
	gone pgbench
	pg_ctl -s -w -D $data -m fast stop
	up
	;;
crash)
	for comm in $(grep -lsE '^(postgres|pgbench)$' /proc/[0-9]*/comm); do
		kill -9 "$(echo "$comm" | cut -d/ -f3)" || true # its parent's end may have ended it
	done
	gone 'postgres|pgbench'
	rm -f $data/postmaster.pid
	up
	psql -q bench -c 'update pgbench_accounts set filler = aid::text where aid % 100 = 0' # it is of use again
	;;
esac
