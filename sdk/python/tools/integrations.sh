#!/bin/bash
# Tests the adapters of frameworks: integrations.sh CACHE PROGRAM [NAME...]. Each has a virtual environment of its
# own, which is made from tools/integrations/NAME.txt. Its first line may say which Python it needs at least.
set -u -o pipefail
cache=$(realpath "$1")
program=$(realpath "$2")
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Prints a Python that is at least of a version, and runs.
python_of() {
	for p in python3 python3.12 python3.13 python3.14 "$HOME"/.pyenv/versions/*/bin/python3; do
		"$p" -c "import sys, venv; sys.exit(sys.version_info[:2] < tuple(map(int, '$1'.split('.'))))" 2>/dev/null && { command -v "$p"; return; }
	done
	return 1
}

failed=
for list in tools/integrations/*.txt; do
	name=$(basename "$list" .txt)
	[ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
	began=$SECONDS
	need=$(sed -n '1s/^# python: //p' "$list")
	python=$(python_of "${need:-3.9}") || {
		echo "skip: ramet.integrations.$name: it needs Python $need, which is not here"
		continue
	}
	dir="$cache/python-$name-$({ "$python" --version; cat "$list"; } | sha256sum | cut -c1-12)"
	if [ ! -e "$dir/complete" ]; then
		rm -rf "$dir"
		{ "$python" -m venv "$dir" && "$dir/bin/pip" install -q --disable-pip-version-check --retries 1 -r "$list"; } >"$cache/python.log" 2>&1 || {
			echo "skip: ramet.integrations.$name: it cannot be installed: $(tail -n 1 "$cache/python.log")"
			continue
		}
		touch "$dir/complete"
	fi
	RAMET_BIN="$program" PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 "$dir/bin/python" -m pytest -q -rsx --noconftest -o addopts='-p no:cacheprovider' -o asyncio_mode=auto \
		-W ignore::pytest.PytestDeprecationWarning "tests/integrations/test_$name.py" 2>&1 | sed -u 's/^SKIPPED/skip: &/'
	if [ "${PIPESTATUS[0]}" = 0 ]; then result='ok  '; else result=FAIL failed=1; fi
	printf '%s\tramet.integrations.%s\t%ds\n' "$result" "$name" $((SECONDS - began))
done
[ -z "$failed" ]
