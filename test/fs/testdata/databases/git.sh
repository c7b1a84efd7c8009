# Commits to a git repository and checks it. The number of a commit is its
# message and the contents of the file "number".
set -eu
repo=/srv/repo
run=/srv/git-run

commit() {
	n=$(($(git rev-list --count HEAD) + 1))
	echo "$n" >number
	mkdir -p "dir$((n % 7))"
	seq "$n" $((n * 3)) >"dir$((n % 7))/file$((n % 13))"
	[ $((n % 5)) != 0 ] || rm -rf "dir$(((n + 3) % 7))"
	[ $((n % 4)) != 0 ] || { mv "dir$((n % 7))" moved && mv moved "dir$((n % 7))"; }
	git add -A
	git commit -q -m "$n"
	[ $((n % 12)) != 0 ] || git repack -a -d -q
}

case $1 in
start)
	mkdir -p $repo $run
	git config --global user.name ramet
	git config --global user.email ramet@localhost
	git config --global gc.auto 0
	git init -q $repo
	cd $repo
	git commit -q --allow-empty -m 1
	setsid sh "$0" write >/dev/null 2>$run/errors </dev/null &
	;;
write)
	echo $$ >$run/pid
	cd $repo
	until [ -e $run/stop ]; do
		commit
		sleep 0.05 # others want to look as well
	done
	touch $run/stopped
	;;
progress)
	cd $repo
	git rev-list --count HEAD
	;;
check) # needs a repository that nobody works on: packs go away meanwhile
	if ! [ -e $run/stopped ]; then
		cd $repo
		git log -1 --format=%s >/dev/null
		exit
	fi
	cd $repo
	git fsck --full --strict --no-dangling --no-progress
	n=$(git rev-list --count HEAD)
	[ "$(git log -1 --format=%s)" = "$n" ]
	[ "$(git show HEAD:number)" = "$n" ] || [ "$n" = 1 ]
	git log --format=%s | awk '$1 != prev - 1 && NR > 1 { exit 1 } { prev = $1 }'
	git status --porcelain >/dev/null
	[ ! -s $run/errors ] || { cat $run/errors && false; }
	rm -rf /srv/clone
	git clone -q $repo /srv/clone
	[ "$n" = 1 ] || [ "$(cat /srv/clone/number)" = "$n" ]
	;;
stop)
	touch $run/stop
	until [ -e $run/stopped ]; do sleep 0.01; done
	cd $repo
	[ -z "$(git status --porcelain)" ]
	;;
crash)
	kill -9 "-$(cat $run/pid)"
	while [ -e "/proc/$(cat $run/pid)" ]; do sleep 0.01; done
	: >$run/errors # of programs whose relatives were killed
	touch $run/stopped
	cd $repo
	find .git -name '*.lock' -delete # as git itself tells to
	git fsck --full --strict --no-dangling --no-progress
	git add -A
	git diff --cached --quiet || git reset -q --hard
	commit # the repository is of use again
	;;
esac
