#!/usr/bin/env bash
# Sets up a real Nsight Compute without a GPU and without touching the system: tests/tools/install-ncu.sh DIR
#
# It is Debian's own package of release 2024.1, unpacked into DIR (180 MB, of a download of 340 MB): DIR/bin goes on PATH,
# and DIR/examples has NVIDIA's own reports with machine code and source. It prints reports and lists metrics; only a
# machine with a GPU profiles. Export PROFZOO_NCU=DIR, and tests/unit/test_ncu_real.py runs. Does nothing where DIR is
# complete.
set -euo pipefail

. "$(dirname "$0")/debian_packages.sh"

begin "Nsight Compute" "$@"
list_non_free
unpack ncu "$tmp/trixie.list" nsight-compute nsight-compute-target

rm -rf "$dir/nsight-compute" "$dir/examples" "$dir/bin"
mkdir "$dir/bin"
cp -r "$tmp/ncu/usr/lib/x86_64-linux-gnu/nsight-compute" "$dir/"
cp -r "$tmp/ncu/usr/share/doc/nsight-compute/examples" "$dir/"
program=$(echo "$dir"/nsight-compute/target/*/ncu)
# It writes its section files below the home of the user.
printf '#!/bin/sh\nHOME=%q exec %q "$@"\n' "$dir/home" "$program" > "$dir/bin/ncu"
mkdir -p "$dir/home"
chmod +x "$dir/bin/ncu"
"$dir/bin/ncu" --version
touch "$dir/.complete"
