#!/bin/bash
# Builds the wheels into dist: build.sh CACHE PROGRAM..., one without a program and one with each. The same sources
# make the same bytes.
set -eu -o pipefail
cache=$(realpath "$1")
shift
programs=$(realpath "$@")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
env=$(tools/env.sh "$cache")
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)}"
export PATH="$env/bin:$PATH" PYTHONDONTWRITEBYTECODE=1
rm -rf dist
python -m hatchling build -t wheel -d dist
for program in $programs; do RAMET_WHEEL_PROGRAM="$program" python -m hatchling build -t wheel -d dist; done
