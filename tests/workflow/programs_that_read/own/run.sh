# Runs a script after another one, as the shell of a user does.
set -e
python own/prepare.py
exec python own/train.py "$1"
