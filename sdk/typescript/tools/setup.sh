# Sourced in sdk/typescript: puts Node 20 or newer on PATH, and the packages of tools/package.json
# in node_modules. Both come from where npm is configured to take them from, and are kept in the
# repository's .cache. Returns 1 after a reason if they cannot be had.

cache=$PWD/../../.cache/typescript

major() { node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0; }

setup() {
	mkdir -p "$cache"
	cache=$(cd "$cache" && pwd)
	if [ "$(major)" -lt 20 ]; then
		command -v npm >/dev/null || { echo 'there is neither Node 20 nor npm'; return 1; }
		[ -x "$cache/node/node_modules/node/bin/node" ] ||
			npm install --prefix "$cache/node" --no-audit --no-fund --fetch-retries=1 node@22 >/dev/null 2>"$cache/node.err" ||
			{ echo "Node cannot be installed: $(tail -1 "$cache/node.err")"; return 1; }
		PATH=$cache/node/node_modules/node/bin:$PATH
	fi
	stamp=$cache/tools/complete-$(sha256sum tools/package-lock.json | cut -c1-16)
	if [ ! -e "$stamp" ]; then
		command -v npm >/dev/null || { echo 'npm is not installed'; return 1; }
		rm -rf "$cache/tools" && mkdir -p "$cache/tools"
		cp tools/package.json tools/package-lock.json "$cache/tools/"
		npm ci --prefix "$cache/tools" --ignore-scripts --no-audit --no-fund --fetch-retries=1 >/dev/null 2>"$cache/tools.err" ||
			{ echo "npm packages cannot be installed: $(tail -1 "$cache/tools.err")"; return 1; }
		touch "$stamp"
	fi
	ln -sfn "$cache/tools/node_modules" node_modules
}

# Puts the packages of tools/frameworks/package.json among the others, after setup. Returns 1 after a
# reason if they cannot be had: all but the adapters works without them.
frameworks() {
	stamp=$cache/frameworks/complete-$(sha256sum tools/frameworks/package-lock.json | cut -c1-16)
	if [ ! -e "$stamp" ]; then
		rm -rf "$cache/frameworks" && mkdir -p "$cache/frameworks"
		cp tools/frameworks/package.json tools/frameworks/package-lock.json "$cache/frameworks/"
		npm ci --prefix "$cache/frameworks" --ignore-scripts --no-audit --no-fund --fetch-retries=1 >/dev/null 2>"$cache/frameworks.err" ||
			{ echo "the frameworks cannot be installed: $(tail -1 "$cache/frameworks.err")"; return 1; }
		touch "$stamp"
	fi
	mkdir -p node_modules/@langchain
	for name in @langchain/core ai deepagents langchain; do
		ln -sfn "$cache/frameworks/node_modules/$name" "node_modules/$name"
	done
}
