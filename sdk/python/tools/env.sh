#!/bin/bash
# Prints the path of a virtual environment with what tools/requirements.txt lists, and makes it
# first if it is missing. If it cannot be made, the reason is printed to stderr and the exit
# code is 3.
set -eu -o pipefail
cache=$(realpath "${1:?directory for the environment}")
cd "$(dirname "${BASH_SOURCE[0]}")"
command -v python3 >/dev/null || { echo "there is no python3" >&2; exit 3; }
key=$({ python3 --version; cat requirements.txt; } | sha256sum | cut -c1-12)
dir="$cache/python-$key"
if [ ! -e "$dir/complete" ]; then
	rm -rf "$dir"
	{ python3 -m venv "$dir" && "$dir/bin/pip" install -q --disable-pip-version-check --retries 1 -r requirements.txt; } >"$cache/python.log" 2>&1 ||
		{ echo "Python packages cannot be installed: $(tail -n 1 "$cache/python.log")" >&2; exit 3; }
	touch "$dir/complete"
fi
echo "$dir"
