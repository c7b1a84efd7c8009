#!/bin/bash
# Checks and tests the SDK: test.sh CACHE PROGRAM [arguments of pytest]. Lines are those of go test.
set -u -o pipefail
cache=$(realpath "$1")
program=$(realpath "$2")
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
began=$SECONDS
env=$(tools/env.sh "$cache" 2>"$cache/python.reason") || {
	echo "skip: Python SDK: $(cat "$cache/python.reason")"
	exit 0
}
failed=
check() {
	said=$("$@" 2>&1) || { echo "$said"; echo "--- FAIL: sdk/python: $*"; failed=1; }
}
export PATH="$env/bin:$PATH" PYTHONDONTWRITEBYTECODE=1
check python tools/models.py --check
check python tools/sync.py --check
check python tools/reference.py --check
check python ../vectors/make.py --check
check mypy --no-incremental
if command -v node >/dev/null && pyright --version >/dev/null 2>&1; then
	check pyright --pythonpath "$env/bin/python"
else
	echo "skip: pyright: it is a program for Node, which cannot be run here"
fi
base=$(mktemp -d) # pytest keeps the directories of tests
trap 'rm -rf "$base"' EXIT
RAMET_BIN="$program" PYTHONPATH=. python -m pytest -q -rfEs --basetemp="$base/tests" "$@" 2>&1 | sed -u 's/^SKIPPED/skip: &/' || failed=1
if [ -n "$failed" ]; then
	printf 'FAIL\tsdk/python\t%ds\n' $((SECONDS - began))
	exit 1
fi
printf 'ok  \tsdk/python\t%ds\n' $((SECONDS - began))
