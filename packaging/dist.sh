#!/bin/bash
# Builds what is released: dist.sh CACHE. `make dist` has built the programs, the manual pages
# and the packages of the SDKs before. All of it ends in dist, with the digests in SHA256SUMS.
#
# The same commit makes the same bytes: times are those of the commit, owners are root, and
# files have one order.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=$(realpath "$1")
go=${GO:-go}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)}"
export TZ=UTC LC_ALL=C
umask 022

# A version of Debian begins with a digit: that of a commit without a tag has its date, so that a
# later one is newer.
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
version=${version#v}
case $version in
[0-9]*.*) debian=${version//-/+} ;;
*) debian="0~$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M%S).$version" && debian=${debian//-/+} ;;
esac

# sbom DIRECTORY PROGRAM writes what Go modules a program is made of, as a document of CycloneDX.
sbom() {
	"$go" run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 \
		bin -json -std -noserial -notimestamp -version "$version" -output "$1/${2##*/}.cdx.json" "$2" 2>/dev/null
}

# program ARCHITECTURE prints the program for it: this machine's is bin/ramet.
program() {
	if [ "$1" = "$("$go" env GOHOSTARCH)" ]; then echo bin/ramet; else echo "bin/linux-$1/ramet"; fi
}

# tree ARCHITECTURE ROOT PREFIX copies what is installed below ROOT/PREFIX.
tree() {
	local arch=$1
	shift
	install -D -m 755 "$(program "$arch")" "$1$2/bin/ramet"
	mkdir -p "$1$2/share/man/man1"
	install -m 644 bin/man/man1/* "$1$2/share/man/man1/"
	gzip -9n "$1$2"/share/man/man1/*
	install -D -m 644 <(bin/ramet completion bash) "$1$2/share/bash-completion/completions/ramet"
	install -D -m 644 <(bin/ramet completion zsh) "$1$2/share/zsh/vendor-completions/_ramet"
	install -D -m 644 <(bin/ramet completion fish) "$1$2/share/fish/vendor_completions.d/ramet.fish"
	install -D -m 644 LICENSE "$1$2/share/doc/ramet/copyright"
	install -D -m 644 README.md "$1$2/share/doc/ramet/README.md"
	gzip -9nc CHANGELOG.md >"$1$2/share/doc/ramet/changelog.gz"
	install -m 644 -D -t "$1$2/share/doc/ramet/sbom" dist/sbom/"$arch"/*
}

# units ROOT PROGRAM copies the units of systemd, for a program in that place.
units() {
	for unit in system user; do
		from=packaging/systemd/ramet.service
		test "$unit" = system || from=packaging/systemd/user/ramet.service
		install -D -m 644 <(sed "s|/usr/local/bin/ramet|$2|" "$from") "$1/usr/lib/systemd/$unit/ramet.service"
	done
	install -D -m 644 packaging/systemd/ramet.sysusers "$1/usr/lib/sysusers.d/ramet.conf"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist
for arch in amd64 arm64; do
	mkdir -p "dist/sbom/$arch"
	for program in "$(program $arch)" internal/engine/sentrybin/elf/$arch/ramet-{sentry,guest,gateway}; do sbom "dist/sbom/$arch" "$program"; done

	name=ramet_${version}_linux_$arch
	tree $arch "$work/$name" ""
	cp -R packaging/systemd "$work/$name/share/doc/ramet/systemd"
	find "$work/$name" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" | gzip -9n >"dist/$name.tar.gz"

	deb=$work/deb-$arch
	tree $arch "$deb" /usr
	units "$deb" /usr/bin/ramet
	mkdir "$deb/DEBIAN"
	sed "s|@VERSION@|$debian|; s|@ARCHITECTURE@|$arch|; s|@SIZE@|$(du -sk --apparent-size "$deb/usr" | cut -f1)|" packaging/debian/control >"$deb/DEBIAN/control"
	install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$deb/DEBIAN/"
	(cd "$deb" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$deb/DEBIAN/md5sums"
	find "$deb" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$deb" "dist/ramet_${debian}_$arch.deb" >/dev/null
done

cp sdk/python/dist/*.whl sdk/typescript/dist/*.tgz dist/
(cd dist && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
ls -l dist
