#!/usr/bin/env bash
# Asks `profzoo advise` about scripts of frameworks, one after the other, and prints a line for each: seconds, exit code,
# steps, phase, batch, what a step is, and the first advice.
#   frameworks.sh FOLDER [NAME ...]    # FOLDER: for what they leave, is made; NAME: only these; SECONDS_EACH=70 limits each
set -uo pipefail
home=$PWD folder=$(realpath -m "$1")
shift
only=" $* "
export PYTHONPATH=$home${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
gpus=$(python -c 'import torch; print(torch.cuda.device_count())')
device=$([ "$gpus" -gt 0 ] && echo cuda || echo cpu)

# NAME PACKAGE WORD ...: of the command; its scripts lie in tests/scripts.
ask() {
  local name=$1 package=$2 place=$folder/$1
  shift 2
  [ "$only" = "  " ] || [[ $only == *" $name "* ]] || return
  if ! python -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)"; then
    echo "$name: skipped, as $package is not installed"
    return
  fi
  mkdir -p "$place"
  for word in "$@"; do
    [ ! -f "$home/tests/scripts/$word" ] || cp "$home/tests/scripts/$word" "$place"
  done
  local began=$SECONDS code=0
  (cd "$place" && timeout -k 5 "${SECONDS_EACH:-70}" python -m profzoo advise --budget 40s -- "${@##*/}") \
    > "$folder/$name.log" 2>&1 < /dev/null || code=$?
  python - "$name" "$place" "$folder/$name.log" "$code" "$((SECONDS - began))" << 'END'
import json, sys
from pathlib import Path

name, place, log, code, seconds = sys.argv[1:]
lines = Path(log).read_text(errors="replace").splitlines()
sidecars = sorted(Path(place).glob("profzoo-results/results/*/*.time.csv.json"))
facts = json.loads(sidecars[0].read_text()) if sidecars else {}
starts = {word: next((line for line in lines if line.startswith(f"{word} ")), "") for word in ("step", "change", "verdict")}
print(f"{name}: {seconds} s, exit code {code}, {facts.get('steps')} steps, {sidecars[0].name.split('.')[0] if sidecars else 'no phase'}, "
      f"batch {facts.get('batch')}; {starts['step']}; {starts['change'] or starts['verdict'] or lines[-1:]}", flush=True)
END
}

ask loop torch python loop.py --device "$device" --workers 2 --epochs 3000
ask accumulation torch python loop.py --device "$device" --accumulate 3 --epochs 3000
ask compiled torch python loop.py --device "$device" --compile inductor --epochs 3000
ask adversarial torch python adversarial.py "$device" 5000
ask no_optimizer torch python samples.py 'no optimizer' "$device" 100
ask lbfgs torch python samples.py search "$device" 100
ask lightning pytorch_lightning python frameworks/lightning_fit.py
ask trainer transformers python frameworks/transformers_fit.py
ask generation transformers python frameworks/transformers_generate.py
ask accelerate accelerate python frameworks/accelerate_loop.py
ask geometric torch_geometric python frameworks/geometric_graphs.py
ask sampling torch python sampling.py
ask engine torch python engine.py spawn
ask ranks torch env STEPS=5000 torchrun --standalone --nproc-per-node=2 ranks.py
# NCCL refuses two processes on one GPU.
ask fully_sharded torch env STEPS=5000 torchrun --standalone --nproc-per-node=$((gpus == 1 ? 1 : 2)) fully_sharded.py
