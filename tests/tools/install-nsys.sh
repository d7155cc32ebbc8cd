#!/usr/bin/env bash
# Sets up a real Nsight Systems without a GPU and without touching the system: tests/tools/install-nsys.sh DIR
#
# It is Debian's own package of release 2023.4, unpacked into DIR (400 MB): DIR/target-linux-x64 goes on PATH, and
# DIR/python, which holds a release of the Python package nvtx that it understands, on PYTHONPATH. Export
# PROFZOO_NSYS=DIR/target-linux-x64, and the test suite finds both. Does nothing where DIR is complete.
set -euo pipefail

die() { echo "install-nsys: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: install-nsys.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -e "$dir/.complete" ] && exit 0

for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || die "no $tool here: this takes a Debian machine; install Nsight Systems by hand"
done
[ "$(dpkg --print-architecture)" = amd64 ] || die "unpacks packages for amd64 only, this is $(dpkg --print-architecture)"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# fetch NAME SOURCES PACKAGE...: packages from these apt sources, unpacked into $tmp/NAME. Lists and archives of apt
# stay in $tmp, so that neither root nor a change to the system is needed.
fetch() {
  local name=$1 sources=$2 options
  shift 2
  mkdir -p "$tmp/$name.apt/lists/partial" "$tmp/$name.apt/cache/archives/partial" "$tmp/$name.debs"
  options=(-qq -o "Dir::State::Lists=$tmp/$name.apt/lists" -o "Dir::Cache=$tmp/$name.apt/cache"
           -o "APT::Sandbox::User=$(id -un)" -o Acquire::Retries=3)
  # Without a list of its own, apt takes the machine's sources.
  [ -z "$sources" ] || options+=(-o "Dir::Etc::SourceList=$sources" -o Dir::Etc::SourceParts=/dev/null)
  apt-get "${options[@]}" update || die "apt cannot read its package lists: is the mirror to be reached?"
  (cd "$tmp/$name.debs" && apt-get "${options[@]}" download "$@") || die "apt has no $*"
  for deb in "$tmp/$name.debs"/*.deb; do dpkg-deb -x "$deb" "$tmp/$name"; done
}

# The mirror is the one that the machine's own sources name.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null \
  | grep -v '^ *#' | grep -oE '[a-z+]+://[^] ]+/debian/?( |$)' | head -n 1 || true)
[ -n "$mirror" ] || die "apt's sources name no Debian mirror: install Nsight Systems by hand"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror trixie non-free" > "$tmp/trixie.list"
fetch nsys "$tmp/trixie.list" nsight-systems nsight-systems-target
# What its importer links against, in builds that fit the machine's C library.
fetch libraries "" libssh-4 libpfm4

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
