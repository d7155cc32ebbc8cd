#!/usr/bin/env bash
# Runs ncu's jobs with programs that are forks to which it attaches, and with programs that it starts, in turn; prints
# seconds, and compares the tables: the same launches, and metrics within the noise between two runs.
#   attached.sh FOLDER [REPEATS [WORD ...]]    # on a GPU; FOLDER: for results, is made; WORD: of snakemake, tables end in .csv
set -euo pipefail
folder=$1 repeats=${2:-2}
shift $(($# > 2 ? 2 : $#))
targets=("$@")
[ $# -gt 0 ] || targets=(results/lstm/train.ncu.survey.csv results/lstm/inference.ncu.survey.csv)
mkdir -p "$folder"
for number in $(seq "$repeats"); do
  for fork in true false; do
    begin=$(date +%s%N)
    snakemake --directory "$folder/$fork$number" -j1 "${targets[@]}" --config "fork=$fork" \
      > "$folder/$fork$number.log" 2>&1 || { tail -n 30 "$folder/$fork$number.log"; exit 1; }
    printf 'fork=%-5s  %5d ms\n' "$fork" $((($(date +%s%N) - begin) / 1000000))
  done
done
grep -rh "^ncu starts the program itself" "$folder"/true*/results/logs || echo "ncu started no program itself"
python - "$folder" "$repeats" "${targets[@]}" << 'END'
import json, sys
from pathlib import Path

import pandas as pd

folder, repeats, targets = Path(sys.argv[1]), int(sys.argv[2]), [word for word in sys.argv[3:] if word.endswith(".csv")]
KEY = ["mangled", "range", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]


def seconds(name: str) -> str:
    found = [json.loads(path.read_text()) for path in sorted((folder / name).glob("results/**/*.ncu-rep.json"))]
    return ", ".join(f"{one['cell']['phase']} {one['set']} {one['wall_s']:.1f} s ({one.get('attached', '-')})" for one in found)


for number in range(1, repeats + 1):
    for fork in ("true", "false"):
        print(f"fork={fork}: jobs (runs that were attached): {seconds(fork + str(number))}")
bad = 0
for target in targets:
    tables = {name: pd.read_csv(folder / name / target, keep_default_na=False)
              for name in (f"{fork}{number}" for number in range(1, repeats + 1) for fork in ("true", "false"))}
    place = "launch" if "launch" in tables["true1"] else "id"
    base = tables["false1"].set_index(place)
    for name, own in tables.items():
        own = own.set_index(place)
        both = own.index.intersection(base.index)
        same = (own.loc[both, KEY].astype(str) == base.loc[both, KEY].astype(str)).all(axis=None)
        # Of each metric, the sum over common launches.
        metrics = [column for column in own if "__" in column and column in base]
        sums = {one: (pd.to_numeric(own.loc[both, one], errors="coerce").sum(), pd.to_numeric(base.loc[both, one], errors="coerce").sum()) for one in metrics}
        off = {one: round(a / b - 1, 3) for one, (a, b) in sums.items() if b and abs(a / b - 1) > 0.001}
        bad += not same or not len(both) or set(own) != set(base)
        print(f"{target} {name}: {len(own)} launches, {len(base)} of false1, {len(both)} common, "
              f"{'the same' if same else 'OTHERS'}; metrics off by more than 0.1 %: {off}")
sys.exit(bool(bad))
END
