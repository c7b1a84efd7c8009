# Debian packages for emulated machines, without installing any: to be sourced, with the directory in $machine.
# Lists and packages are kept there, so that a second run needs no network.

# skip ends the script, whose purpose cannot be had here.
skip() {
	echo "SKIP: $*"
	exit 0
}

apt=(-q -o "Dir::State=$machine/apt" -o Dir::State::status=/var/lib/dpkg/status -o "Dir::Cache=$machine/apt/cache"
	-o APT::Sandbox::User=root -o Debug::NoLocking=1)

# architectures ARCH... are those whose packages are wanted besides this machine's.
architectures() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "this system has no apt-get"
	local native
	native=$(dpkg --print-architecture)
	apt+=(-o "APT::Architectures=$(IFS=,; echo "$native $*" | tr ' ' ,)")
	mkdir -p "$machine/apt/lists/partial" "$machine/apt/cache/archives/partial" "$machine/debs"
	if [ -z "$(find "$machine/apt/lists" -maxdepth 1 -name '*_Packages*' -mtime -30 -print -quit)" ]; then
		apt-get "${apt[@]}" update >"$machine/apt.log" 2>&1 || skip "no lists of packages can be had: $(tail -1 "$machine/apt.log")"
	fi
}

# download PACKAGE... downloads packages that are not there yet, and prints their files.
download() {
	local name file
	for name in "$@"; do
		file=$(find "$machine/debs" -maxdepth 1 -name "${name%%:*}_*_${name##*:}.deb" -print -quit)
		if [ -z "$file" ]; then
			(cd "$machine/debs" && apt-get "${apt[@]}" download "$name") >"$machine/apt.log" 2>&1 || return 1
			file=$(find "$machine/debs" -maxdepth 1 -name "${name%%:*}_*_${name##*:}.deb" -print -quit)
		fi
		[ -n "$file" ] && echo "$file"
	done
}

# unpack DIRECTORY PACKAGE... unpacks packages, each once.
unpack() {
	local to=$1 name file
	shift
	mkdir -p "$to"
	for name in "$@"; do
		[ -e "$to/.unpacked-$name" ] && continue
		file=$(download "$name") && [ -n "$file" ] || skip "package $name cannot be had: $(tail -1 "$machine/apt.log")"
		dpkg-deb -x "$file" "$to"
		touch "$to/.unpacked-$name"
	done
}

# unpack_all DIRECTORY PACKAGE... unpacks packages of this machine's architecture with those that they need and that
# this machine lacks.
unpack_all() {
	local to=$1 names native
	shift
	[ -e "$to/.complete" ] && return
	native=$(dpkg --print-architecture)
	names=$(apt-get "${apt[@]}" -s --no-install-recommends install "$@" 2>"$machine/apt.log" | sed -n 's/^Inst \([^ ]*\) .*\[\([a-z0-9]*\)\]).*/\1:\2/p') ||
		skip "packages $* cannot be had: $(tail -1 "$machine/apt.log")"
	# shellcheck disable=SC2086
	unpack "$to" $names
	[ -n "$native" ] && touch "$to/.complete"
}

# in_root ROOT PROGRAM... runs a program of packages that were unpacked in ROOT.
in_root() {
	local root=$1 program=$1/usr/bin/$2
	[ -e "$program" ] || program=$1/bin/$2
	shift 2
	LD_LIBRARY_PATH="$(find "$root/usr/lib" "$root/lib" -maxdepth 1 -type d -name '*-linux-gnu' 2>/dev/null | tr '\n' ':')" "$program" "$@"
}
