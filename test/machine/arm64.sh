#!/bin/bash
# Runs tests in an emulated arm64 machine: arm64.sh CACHE. `make soak-arm64` has built bin/linux-arm64/ramet before.
#
# The machine is QEMU's, without KVM, with Debian's cloud kernel and busybox. All of it comes from Debian packages,
# which are kept in CACHE/machine and not installed. It has the command line and cross-built suites, runs a session
# of the one and the tests of the others that TESTS names, and ends. It is some twenty times slower than a real one.
#
# TESTS are suites with patterns of their tests: "fork:TestFork process:TestExec". MACHINE_TIME bounds the run, in
# seconds, and TEST_TIMEOUT that of one suite; MACHINE_CPU, MACHINE_CPUS and MACHINE_MEMORY (MiB) are the machine's.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$1/machine"
machine=$(realpath "$1")/machine
. test/machine/packages.sh
go=${GO:-go}
tests=${TESTS:-$(grep -v '^#' test/machine/arm64.tests)}
arch=arm64

architectures "$arch"
qemu=$machine/qemu
unpack_all "$qemu" qemu-system-arm cpio
kernel=$(apt-cache "${apt[@]}" depends linux-image-cloud-$arch:$arch 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ :]*\).*/\1/p' | head -1)
[ -n "$kernel" ] || kernel=$(ls "$machine/debs" | sed -n "s/^\(linux-image-[0-9][^_]*cloud-$arch\)_.*/\1/p" | head -1)
[ -n "$kernel" ] || skip "there is no kernel for $arch among the packages"
unpack "$machine/system-$arch" "$kernel:$arch" "busybox-static:$arch"

# The root of the machine.
root=$machine/root-$arch
rm -rf "$root"
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,root,etc,assets,lib/modules,suites,work}
cp "$machine/system-$arch/bin/busybox" "$root/bin/"
cp "bin/linux-$arch/ramet" "$root/bin/"
find "$machine/system-$arch/lib/modules" -name 'overlay.ko*' -exec cp {} "$root/lib/modules/" \;
cp test/machine/init test/machine/main "$root/"
for suite in $(printf '%s\n' $tests | grep -v '^session' | cut -d: -f1 | sort -u); do
	package=test/$suite
	[ -d "$package" ] || package=$suite
	name=${suite//\//-}
	CGO_ENABLED=0 GOARCH=$arch "$go" test -c -ldflags '-s -w' -o "$root/suites/$name" "./$package"
	mkdir -p "$root/work/$package"
	if [ -d "$package/testdata" ]; then cp -R "$package/testdata" "$root/work/$package/"; fi
done
printf '%s\n' $tests >"$root/tests"
echo "${TEST_TIMEOUT:-900s}" >"$root/etc/test-timeout"
CGO_ENABLED=0 "$go" test -c -o "$machine/assets.test" ./test/node
CGO_ENABLED=0 GOARCH=$arch "$machine/assets.test" assets "$root/assets"
(cd "$root" && find . | in_root "$qemu" cpio --quiet -o -H newc) >"$machine/initrd-$arch"

log=$machine/$arch.log
status=0
in_root "$qemu" qemu-system-aarch64 -nodefaults -nographic -serial stdio -no-reboot -L "$qemu/usr/share/qemu" \
	-M virt -cpu "${MACHINE_CPU:-max,pauth-impdef=on}" -accel tcg,thread=multi -smp "${MACHINE_CPUS:-2}" -m "${MACHINE_MEMORY:-4096}" \
	-kernel "$machine/system-$arch/boot/vmlinuz-${kernel#linux-image-}" -initrd "$machine/initrd-$arch" \
	-append "console=ttyAMA0 quiet panic=-1 slow=${RAMET_TEST_SLOW:-20}" </dev/null >"$log" 2>&1 &
pid=$!
trap 'kill -9 "$pid" 2>/dev/null || true' EXIT INT TERM
timeout "${MACHINE_TIME:-600}" tail --pid=$pid -n +1 -f "$log" | sed -u 's,\r,,' || status=$?
rm -f "$machine/initrd-$arch"
if ! grep -q '^@ end' "$log"; then
	echo "FAIL: the machine did not get to the end (see $log)"
	exit 1
fi
if grep -q '^@ .* failed' "$log"; then
	grep '^@ .* failed' "$log" | sed 's/^@/FAIL:/'
	exit 1
fi
