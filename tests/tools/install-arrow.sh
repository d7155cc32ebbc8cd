#!/usr/bin/env bash
# Gets pyarrow for the tests that write Parquet and Arrow: tests/tools/install-arrow.sh DIR
#
# It is installed into DIR, apart from the environment, because pandas loads it wherever it can be imported. Export
# PROFZOO_ARROW=DIR, and the test suite finds it. Does nothing where it is there.
set -euo pipefail

[ $# -eq 1 ] || { echo "install-arrow: usage: install-arrow.sh DIR" >&2; exit 1; }
[ -e "$1/.complete" ] && exit 0
here=$(cd "$(dirname "$0")" && pwd)
"${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target "$1" \
  --requirement "$here/arrow.txt"
touch "$1/.complete"
