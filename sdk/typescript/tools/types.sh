#!/bin/sh
# Writes the types of the package of api/openapi.json. Where there is no Node it says so.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
setup || { echo 'the types of the TypeScript SDK are not written'; exit 0; }
node tools/generate.mjs
