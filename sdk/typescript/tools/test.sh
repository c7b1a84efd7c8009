#!/bin/sh
# Builds and tests the TypeScript SDK. What it prints is of the form of go test.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
setup || { printf -- '--- SKIP: sdk/typescript (0.00s)\nok  \tsdk/typescript\t0s\n'; exit 0; }

without=$(frameworks) || printf -- '--- SKIP: sdk/typescript/integrations (0.00s)\n    %s\n' "$without"
rm -rf build/integrations lib/integrations # what an older run has left would be tested

begun=$(date +%s)
status=0
{
	node tools/generate.mjs --check &&
		node node_modules/typescript/bin/tsc -p . &&
		node node_modules/typescript/bin/tsc -p test &&
		if [ -z "$without" ]; then
			node node_modules/typescript/bin/tsc -p src/integrations && node node_modules/typescript/bin/tsc -p test/integrations
		fi &&
		node build/main.js "$@"
} || status=1
result='ok  '
[ $status = 0 ] || result=FAIL
printf '%s\tsdk/typescript\t%ss\n' "$result" $(($(date +%s) - begun))
exit $status
