#!/bin/sh
# Installs a Python with exactly the packages of requirements.lock into Debian or Ubuntu, as root:
#   install.sh /path/to/requirements.lock
# Dockerfile and profzoo.def both run this script, and it also makes a chroot; docs/start/machine.md says how.
set -eu

# git names the commit in each result's sidecar; rsync is how pods share files. torch.compile needs the compiler, on the
# GPU with Python's headers.
apt-get update
apt-get install --yes --no-install-recommends ca-certificates g++ git python3 python3-dev python3-venv rsync
rm -rf /var/lib/apt/lists/*

python3 -m venv /opt/profzoo
/opt/profzoo/bin/python -m pip install --no-cache-dir --require-hashes --no-deps --requirement "$1"
