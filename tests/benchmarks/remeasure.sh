#!/usr/bin/env bash
# Remeasures on two GPUs of one machine what docs/measured says of the zoo, in calls that each end in time.
#
#   bash tests/benchmarks/remeasure.sh SECONDS STAGE ...
#
# zoo       all cells under time, nsys, torch and the set survey (zoo_minutes)
# truth     every launch of some cells counted (counted_truth)
# nulls     every cell compared with itself (null_comparisons)
# slowdown  3 % planted in a layer, and nothing (known_slowdown)
# variants  some cells by precision, layout, graph and compiler: times, energy, launches
# trials    the advice of verdicts, tried
#
# A GPU has half of the models, and the stages one after the other; what they print is in lanes/0.log and lanes/1.log,
# what they make in lanes/{0,1}/results. What was made is not made again: call it until both logs end with 0.
set -euo pipefail
cd "$(dirname "$0")/../.."

zoo=("inceptionresnetv2 gnmt inceptionv3 resnetv2_50 bert pspnet spade unet srgan vgg16 lstm"
  "inceptionv4 resnetv2_152 pixelrnn mobilenetv2 gpt deeplab icnet dped srcnn vgg19")
truth=("bert/train bert/inference unet/inference srgan/inference resnetv2_50/train gnmt/inference lstm/train"
  "mobilenetv2/train deeplab/inference vgg19/inference gpt/inference icnet/train pixelrnn/inference dped/inference")
varied=("bert unet resnetv2_50 inceptionv3" "mobilenetv2 gpt vgg19 deeplab")
changes=tf32,bf16,bf16+channels_last,graph,reduce-overhead
make="snakemake -j4 --keep-going"

seconds=$1
shift
for gpu in 0 1; do
  models=${zoo[gpu]// /,}
  todo="code=0; "
  for stage in "$@"; do
    case $stage in
      zoo) todo+="SECONDS=$((seconds - 40)) python -m tests.benchmarks.zoo_minutes run after ${zoo[gpu]} || code=1; " ;;
      truth) todo+="python -m tests.benchmarks.counted_truth ${truth[gpu]} || code=1; " ;;
      nulls) todo+="python -m tests.benchmarks.null_comparisons ${zoo[gpu]} || code=1; " ;;
      slowdown) todo+="python -m tests.benchmarks.known_slowdown --first ${gpu}0 --cells 10 || code=1; " ;;
      variants) todo+="$make compare --config run=variants tool=sample,nsys models=${varied[gpu]// /,} phases=train repeats=3 candidate=$changes || code=1; " ;;
      trials) todo+="$make trials --config run=trials tool=ncu,nsys models=$models 'ncu={set: roofline}' 'trials={budget: 100s, panel: []}' || code=1; " ;;
      *) echo "no stage $stage: see the first lines of $0" >&2 && exit 2 ;;
    esac
  done
  bash tests/benchmarks/lane.sh "$gpu" "$seconds" "${todo}exit \$code" &
done
wait
tail -n 25 lanes/0.log lanes/1.log
