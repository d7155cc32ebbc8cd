#!/usr/bin/env bash
# Times what a new user does first, step by step: from a clone to a verdict on the model that README.md has as example.
#   first_hour.sh SOURCE FOLDER          # `make demo` installs the environment; on a CPU, with torch.profiler
#   first_hour.sh SOURCE FOLDER entered  # in an environment that has everything; on a GPU, with ncu, nsys and torch.profiler
# SOURCE: a repository, or a checkout without one. FOLDER: where everything goes; it does not exist yet.
set -euo pipefail
source=$(realpath "$1") folder=$2 entered=${3:-}
mkdir "$folder"
cd "$folder"
log=$PWD/step.log

# Runs a command, and then prints the seconds that it took and its last lines.
step() {
  local begin code=0
  begin=$(date +%s)
  "$@" > "$log" 2>&1 || code=$?
  printf '%6d s  exit code %d  %s\n' $(($(date +%s) - begin)) "$code" "$*"
  tail -n "${LINES_SHOWN:-3}" "$log" | cut -c 1-200 | sed 's/^/            /'
}

# Writes the model that README.md has as example into the zoo.
write_model() {
  awk '/^```python$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md > models/mine.py
  grep -q '^def build' models/mine.py
}

if git -C "$source" rev-parse > "$log" 2>&1; then
  step git clone --quiet "$source" profzoo
else
  (cd "$source" && python3 -m profzoo init "${log%/*}/profzoo")
fi
cd profzoo
if [ -z "$entered" ]; then
  LINES_SHOWN=4 step make demo
  . .venv/bin/activate
  tool=tool=torch
fi
LINES_SHOWN=1 step snakemake doctor
write_model
LINES_SHOWN=2 step snakemake -n --config models=mine ${tool:-}
LINES_SHOWN=20 step snakemake report --config models=mine ${tool:-}
