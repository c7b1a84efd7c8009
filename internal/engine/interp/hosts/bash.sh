# The Bash interpreter of a context: it evaluates the cells that it is sent, in
# the shell itself, and keeps what they define. See the package comment of
# internal/engine/interp for the frames.
#
# A cell that ends the shell (exit, set -e, an unset variable under set -u) or is
# interrupted must not end the context: the shell is then executed anew, in the
# same process, with what it had: variables, functions, options, aliases. Its
# background processes stay its children.
#
# It is the stub (start.go) that evaluates cells, as lines of cells are counted from
# the line of the eval: 1 there.

__ramet_send() { # kind, payload
	local LC_ALL=C
	printf '%s %08x %08x\n%s' "$1" "$((16#$__ramet_run))" "${#2}" "$2" >&"$__ramet_out"
}

__ramet_done() { # status
	local error=
	if (($1 == 130)) && [[ $__ramet_interrupted ]]; then
		error=',"error":{"name":"Interrupt","value":"interrupted","traceback":""}'
	fi
	__ramet_send d "{\"execution_count\":$__ramet_count,\"exit_code\":$1$error}"
	__ramet_run=00000000
}

# __ramet_again ends the cell whose end would be the shell's.
__ramet_again() {
	local status=$? again options=${-//[!eux]/}
	[[ $BASHPID == "$__ramet_pid" && $__ramet_run != 00000000 ]] || return
	trap - EXIT
	trap ':' INT
	{ set +eux; } 2>/dev/null
	__ramet_done "$status"
	again=$(
		declare -p | while IFS= read -r line; do
			# Bash's own variables cannot or need not be set again.
			[[ $line =~ ^declare\ -[a-zA-Z-]+\ (BASH|BASHOPTS|BASHPID|BASH_(ALIASES|ARGC|ARGV|ARGV0|CMDS|COMMAND|EXECUTION_STRING|LINENO|SOURCE|SUBSHELL|VERSINFO|VERSION)|DIRSTACK|EPOCH[A-Z]+|EUID|FUNCNAME|GROUPS|LINENO|PIPESTATUS|PPID|RANDOM|SHELLOPTS|SRANDOM|UID|_|again|options|status)(=|$) ]] ||
				printf '%s\n' "$line"
		done
		declare -f
		shopt -p
		alias -p
	)
	again+=$'\n'$__ramet_host$'\n'${options:+set -$options}$'\n'
	again+=$(
		set +o | while IFS= read -r line; do
			# What a shell that reads commands cannot have, and what is in options.
			[[ $line =~ \ (errexit|nounset|xtrace|noexec|onecmd|posix|monitor|history|histexpand|emacs|vi|privileged)$ ]] || printf '%s\n' "$line"
		done
	)
	# The cells may have a descriptor 3 of their own by now.
	eval "exec $((__ramet_in + 2))<<<\"\$again\""
	exec "$BASH" --norc --noprofile -c "${__ramet_stub/-u 3/-u $((__ramet_in + 2))}" bash "$(__ramet_bytes "$again")"
}

__ramet_bytes() { # text
	local LC_ALL=C
	builtin echo "${#1}"
}

# __ramet_next waits for the next cell that the stub is to evaluate, and answers what
# else is asked for meanwhile.
__ramet_next() {
	# The last one left the stub's loop by "continue".
	[[ $__ramet_run == 00000000 ]] || __ramet_over 0
	while LC_ALL=C IFS= read -r -N 20 -u "$__ramet_in" __ramet_header; do
		__ramet_run=${__ramet_header:2:8} __ramet_cell=
		if ((16#${__ramet_header:11:8} > 0)); then
			LC_ALL=C IFS= read -r -N "$((16#${__ramet_header:11:8}))" -u "$__ramet_in" __ramet_cell
		fi
		case ${__ramet_header:0:1} in
		x)
			((++__ramet_count))
			trap '__ramet_interrupted=1; exit 130' INT
			return 0
			;;
		s)
			RANDOM=$((16#${__ramet_cell:0:7}))
			__ramet_send d '{"reseeded":["RANDOM"],"failed":[]}'
			;;
		*)
			__ramet_send d '{"exit_code":1,"error":{"name":"Unsupported","value":"the shell cannot do this","traceback":""}}'
			;;
		esac
		__ramet_run=00000000
	done
	trap - EXIT
	exit 0
}

__ramet_over() { # status of the cell
	trap ':' INT
	__ramet_done "$1"
	trap __ramet_again EXIT
	__ramet_interrupted=
}

if [[ ! ${__ramet_pid-} ]]; then
	# Programs that close descriptors close low ones. These are if few are allowed.
	{ : 201<&3; } 2>/dev/null && __ramet_in=200 || __ramet_in=50
	__ramet_out=$((__ramet_in + 1))
	eval "exec $__ramet_in<&3 $__ramet_out>&4 3<&- 4>&-"
	__ramet_pid=$BASHPID __ramet_run=00000000 __ramet_count=0
	__ramet_host=$__ramet_text __ramet_stub=$BASH_EXECUTION_STRING
	__ramet_send h "{\"version\":\"${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}.${BASH_VERSINFO[2]}\",\"pid\":$BASHPID}"
fi
eval "exec $((__ramet_in + 2))<&-"
unset __ramet_text
__ramet_interrupted=
shopt -s expand_aliases
trap ':' INT
trap __ramet_again EXIT
