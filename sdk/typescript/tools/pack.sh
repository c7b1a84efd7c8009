#!/bin/sh
# Writes dist/*.tgz: the package, and the one with the program for this platform.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
setup
frameworks
rm -rf lib dist
mkdir -p dist
node node_modules/typescript/bin/tsc -p .
node node_modules/typescript/bin/tsc -p src/integrations
cp ../../LICENSE LICENSE
npm pack --silent --pack-destination dist >/dev/null
platform=$cache/linux-x64
rm -rf "$platform"
mkdir -p "$platform/bin"
cp ../../bin/ramet "$platform/bin/ramet"
cp LICENSE "$platform/"
node -e '
  const { version, license } = JSON.parse(require("node:fs").readFileSync("package.json"))
  console.log(JSON.stringify({
    name: "@ramet/linux-x64", version, license, description: "The program ramet for Linux on x86-64.",
    os: ["linux"], cpu: ["x64"], files: ["bin"], preferUnplugged: true,
  }, null, 2))
' >"$platform/package.json"
npm pack --silent --pack-destination dist "$platform" >/dev/null
ls dist/*.tgz
