#!/usr/bin/env bash
# Sets up a real Nsight Systems without a GPU and without touching the system: tests/tools/install-nsys.sh DIR
#
# It is Debian's own package of release 2023.4, unpacked into DIR (400 MB): DIR/target-linux-x64 goes on PATH, and
# DIR/python, which holds a release of the Python package nvtx that it understands, on PYTHONPATH. Export
# PROFZOO_NSYS=DIR/target-linux-x64, and the test suite finds both. Does nothing where DIR is complete.
set -euo pipefail

. "$(dirname "$0")/debian_packages.sh"

begin "Nsight Systems" "$@"
list_non_free
unpack nsys "$tmp/trixie.list" nsight-systems nsight-systems-target
# What its importer links against, in builds that fit the machine's C library.
unpack libraries "" libssh-4 libpfm4

rm -rf "$dir/target-linux-x64" "$dir/host-linux-x64" "$dir/python"
cp -r "$tmp/nsys/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64" "$dir/"
from=$tmp/nsys/usr/lib/nsight-systems/host-linux-x64
host=$dir/host-linux-x64
mkdir "$host"
# Of the window's program only the importer is wanted: of Qt no more than it links to.
for file in "$from"/QdstrmImporter "$from"/lib*.so* "$tmp"/libraries/usr/lib/x86_64-linux-gnu/lib{ssh,pfm}.so.4; do
  case ${file##*/} in
    libQt6Core.so.6 | libQt6Network.so.6) ;;
    libQt6* | libssh.so) continue ;;
  esac
  [ ! -e "$file" ] || cp -L "$file" "$host/"
done
ln -s libssh.so.4 "$host/libssh.so"
missing=$(ldd "$host/QdstrmImporter" | awk '/not found/ {print $1}' | sort -u | tr '\n' ' ')
[ -z "$missing" ] || die "the importer lacks libraries: $missing"

"${PYTHON:-python3}" -m pip install --quiet --no-deps --disable-pip-version-check --target "$dir/python" nvtx==0.2.10
# Ranges of later releases of nvtx go unseen by this nsys; this one lacks the objects for domains that they have.
cat >> "$dir/python/nvtx/__init__.py" <<'PYTHON'


class _Domain:
    def __init__(self, name):
        self._name = name

    def get_event_attributes(self, message):
        return message

    def push_range(self, message):
        push_range(message, domain=self._name)

    def pop_range(self):
        pop_range(domain=self._name)


def get_domain(name):
    return _Domain(name)
PYTHON
"$dir/target-linux-x64/nsys" --version
touch "$dir/.complete"
