#!/usr/bin/env bash
# Gets a package that some tests use: tests/tools/install-package.sh arrow|eight-bit|mcp|ncu-report|text DIR
#
# arrow is pyarrow, which writes Parquet and Arrow (PROFZOO_ARROW=DIR); eight-bit is bitsandbytes and torchao, which train
# in 8 bits (PROFZOO_EIGHT_BIT=DIR, 46 MB); mcp is the SDK of the Model Context Protocol with what it needs
# (PROFZOO_MCP=DIR, 45 MB); ncu-report is NVIDIA's, which reads reports of ncu (PROFZOO_NCU_REPORT=DIR, 52 MB); text is
# sentencepiece, which learns vocabularies (PROFZOO_TEXT=DIR). With the variable exported, the test suite finds it. It is
# installed into DIR, apart from the environment: pandas loads pyarrow wherever it can be imported, the SDK brings a web
# server, ncu-report is proprietary, and the others are optional. Does nothing where it is there.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] && [ -e "$here/$1.txt" ] || { echo "install-package: usage: install-package.sh arrow|eight-bit|mcp|ncu-report|text DIR" >&2; exit 1; }
[ -e "$2/.complete" ] && exit 0
"${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target "$2" \
  --requirement "$here/$1.txt"
touch "$2/.complete"
