#!/usr/bin/env bash
# Gets axe-core for the test of the report's accessibility: tests/tools/install-axe.sh DIR
#
# It is the script of a pinned package, unpacked into DIR without what that package needs to drive a browser. Export
# PROFZOO_AXE=DIR/axe.min.js, and the test suite finds it. Does nothing where it is there.
set -euo pipefail

[ $# -eq 1 ] || { echo "install-axe: usage: install-axe.sh DIR" >&2; exit 1; }
[ -e "$1/axe.min.js" ] && exit 0
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target "$tmp" \
  --requirement "$here/axe.txt"
mkdir -p "$1"
cp "$tmp/axe_playwright_python/axe.min.js" "$1/"
