#!/usr/bin/env bash
# Runs a command on one GPU of several and on that GPU's share of the cores, so that benchmarks may go on side by side.
#
#   bash tests/benchmarks/lane.sh GPU SECONDS COMMAND ...
#
# In a copy of the checkout, lanes/GPU, which keeps its results for the next call; ended after so many seconds. What it
# prints goes to lanes/GPU.log, which ends with its exit code.
set -euo pipefail

gpu=$1 seconds=$2
shift 2
cd "$(dirname "$0")/../.."
mkdir -p "lanes/$gpu"
tar -c --exclude=./lanes --exclude=./results --exclude=./.git --exclude=./.venv --exclude=./.snakemake . | tar -x -C "lanes/$gpu"

share=$(($(nproc) / $(nvidia-smi --list-gpus | wc -l)))
log=$PWD/lanes/$gpu.log
cd "lanes/$gpu"
# What a run that was killed has locked.
rm -rf .snakemake/locks
echo "\$ $*" >> "$log"
code=0
CUDA_VISIBLE_DEVICES=$gpu taskset -c "$((gpu * share))-$((gpu * share + share - 1))" \
  timeout -s TERM -k 45 "$seconds" bash -c "$*" >> "$log" 2>&1 || code=$?
echo "ended with $code" >> "$log"
