# Unpacks packages of Debian without root and without a change to the system; install-ncu.sh and install-nsys.sh source it.

installer=$(basename "$0" .sh)

die() { echo "$installer: $*" >&2; exit 1; }

# begin PRODUCT DIR: sets $dir, the folder to install into, and $tmp, which is removed at the end. Ends the script where
# $dir is complete, or where this machine cannot unpack the packages.
begin() {
  product=$1
  shift
  [ $# -eq 1 ] || die "usage: $installer.sh DIR"
  mkdir -p "$1"
  dir=$(cd "$1" && pwd)
  [ -e "$dir/.complete" ] && exit 0
  local tool
  for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || die "no $tool here: this takes a Debian machine; install $product by hand"
  done
  [ "$(dpkg --print-architecture)" = amd64 ] ||
    die "unpacks packages for amd64 only, this is $(dpkg --print-architecture)"
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
}

# list_non_free: writes $tmp/trixie.list, apt's sources of NVIDIA's packages on the mirror that the machine's own
# sources name.
list_non_free() {
  local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null \
    | grep -v '^ *#' | grep -oE '[a-z+]+://[^] ]+/debian/?( |$)' | head -n 1 || true)
  [ -n "$mirror" ] || die "apt's sources name no Debian mirror: install $product by hand"
  echo "deb [signed-by=$keys] $mirror trixie non-free" > "$tmp/trixie.list"
}

# unpack NAME SOURCES PACKAGE...: unpacks packages from these apt sources into $tmp/NAME. Lists and archives of apt stay
# in $tmp.
unpack() {
  local name=$1 sources=$2 deb options
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
