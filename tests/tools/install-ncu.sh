#!/usr/bin/env bash
# Sets up a real Nsight Compute without a GPU and without touching the system: tests/tools/install-ncu.sh DIR
#
# It is Debian's own package of release 2024.1, unpacked into DIR (180 MB, of a download of 340 MB): DIR/bin goes on PATH,
# and DIR/examples has NVIDIA's own reports with machine code and source. It prints reports and lists metrics; only a
# machine with a GPU profiles. Export PROFZOO_NCU=DIR, and tests/unit/test_ncu_real.py runs. Does nothing where DIR is
# complete.
set -euo pipefail

die() { echo "install-ncu: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: install-ncu.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -e "$dir/.complete" ] && exit 0

for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || die "no $tool here: this takes a Debian machine; install Nsight Compute by hand"
done
[ "$(dpkg --print-architecture)" = amd64 ] || die "unpacks packages for amd64 only, this is $(dpkg --print-architecture)"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The mirror is the one that the machine's own sources name.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null \
  | grep -v '^ *#' | grep -oE '[a-z+]+://[^] ]+/debian/?( |$)' | head -n 1 || true)
[ -n "$mirror" ] || die "apt's sources name no Debian mirror: install Nsight Compute by hand"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror trixie non-free" > "$tmp/trixie.list"

# Lists and archives of apt stay in $tmp, so that neither root nor a change to the system is needed.
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs"
options=(-qq -o "Dir::State::Lists=$tmp/lists" -o "Dir::Cache=$tmp/cache" -o "APT::Sandbox::User=$(id -un)"
         -o Acquire::Retries=3 -o "Dir::Etc::SourceList=$tmp/trixie.list" -o Dir::Etc::SourceParts=/dev/null)
apt-get "${options[@]}" update || die "apt cannot read its package lists: is the mirror to be reached?"
(cd "$tmp/debs" && apt-get "${options[@]}" download nsight-compute nsight-compute-target) || die "apt has no nsight-compute"
for deb in "$tmp/debs"/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done

rm -rf "$dir/nsight-compute" "$dir/examples" "$dir/bin"
mkdir "$dir/bin"
cp -r "$tmp/root/usr/lib/x86_64-linux-gnu/nsight-compute" "$dir/"
cp -r "$tmp/root/usr/share/doc/nsight-compute/examples" "$dir/"
program=$(echo "$dir"/nsight-compute/target/*/ncu)
# It writes its section files below the home of the user.
printf '#!/bin/sh\nHOME=%q exec %q "$@"\n' "$dir/home" "$program" > "$dir/bin/ncu"
mkdir -p "$dir/home"
chmod +x "$dir/bin/ncu"
"$dir/bin/ncu" --version
touch "$dir/.complete"
