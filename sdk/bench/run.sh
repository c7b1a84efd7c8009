#!/bin/bash
# Measures the SDKs: run.sh CACHE PROGRAM [words of rows]. It needs what their tests need.
set -eu -o pipefail
store=$(realpath "$1") # setup.sh has a cache of its own
program=$(realpath "$2")
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
env=$(python/tools/env.sh "$store")
cd typescript
. tools/setup.sh
setup
node node_modules/typescript/bin/tsc -p .
cd ../..
PYTHONPATH=sdk/python exec "$env/bin/python" sdk/bench/bench.py "$program" "$store" "$@"
