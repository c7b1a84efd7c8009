#!/bin/bash
# Tests the adapters of frameworks: integrations.sh CACHE PROGRAM. Each has a virtual environment of its own,
# which is made from tools/integrations/NAME.txt. A first line "# python: 3.12" there says how new its Python has to be.
set -u -o pipefail

# newer MAJOR.MINOR: prints the program of a Python that is at least as new. What is in PATH may be a shim that does not run.
newer() {
	local one
	for one in python3 "python$1" python3.13 python3.14 ~/.pyenv/versions/*/bin/python; do
		"$one" -c "import sys, venv; sys.exit(sys.version_info < tuple(map(int, '$1'.split('.'))))" 2>/dev/null || continue
		echo "$one"
		return
	done
	return 1
}

cache=$(realpath "$1")
program=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=
for list in tools/integrations/*.txt; do
	name=$(basename "$list" .txt)
	began=$SECONDS
	version=$(sed -n '1s/^# python: *//p' "$list")
	python=$(newer "${version:-3.0}") || {
		echo "skip: ramet.integrations.$name: no Python $version or newer was found"
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
	result='ok  '
	[ "${PIPESTATUS[0]}" = 0 ] || { result=FAIL; failed=1; }
	printf '%s\tramet.integrations.%s\t%ds\n' "$result" "$name" $((SECONDS - began))
done
[ -z "$failed" ]
