#!/bin/sh
# Writes dist/*.tgz: the package, and one for each program: pack.sh PROGRAM...
set -eu
programs=$(realpath "$@")
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
for program in $programs; do
	# e_machine of the header of ELF.
	case $(od -A n -t u2 -j 18 -N 2 "$program" | tr -d ' ') in
	62) cpu=x64 name=x86-64 ;;
	183) cpu=arm64 name=arm64 ;;
	*) echo "$program is for no known processor" >&2 && exit 1 ;;
	esac
	platform=$cache/linux-$cpu
	rm -rf "$platform"
	mkdir -p "$platform/bin"
	cp "$program" "$platform/bin/ramet"
	cp LICENSE "$platform/"
	node -e '
	  const { version, license } = JSON.parse(require("node:fs").readFileSync("package.json"))
	  const [cpu, name] = process.argv.slice(1)
	  console.log(JSON.stringify({
	    name: `@ramet/linux-${cpu}`, version, license, description: `The program ramet for Linux on ${name}.`,
	    os: ["linux"], cpu: [cpu], files: ["bin"], preferUnplugged: true,
	  }, null, 2))
	' "$cpu" "$name" >"$platform/package.json"
	npm pack --silent --pack-destination dist "$platform" >/dev/null
done
ls dist/*.tgz
