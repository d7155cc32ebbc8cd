#!/usr/bin/env bash
# Remeasures on one GPU, or two of a machine, what docs/measured says of the zoo, in calls that each end in time.
#
#   bash tests/benchmarks/remeasure.sh SECONDS STAGE ...
#   bash tests/benchmarks/remeasure.sh SECONDS STAGE ... -- STAGE ...
#
# zoo       all cells under time, nsys, torch and the set survey, and how long that takes (zoo_minutes)
# tables    the same, beside what other stages collect
# truth     every launch of some cells counted (counted_truth), or of the cells TRUTH
# costs     what parts of the set survey cost, and what could stand in their place (ncu_costs)
# layers    the same of cells that count other operations than they need
# deep      mobilenetv2 train under the sets roofline and full
# nulls     every cell compared with itself (null_comparisons)
# slowdown  3 % planted in a layer, and nothing (known_slowdown), of 20 cells; or of CELLS from number FIRST on
# variants  some cells by precision, layout, graph and compiler: times, energy, launches
# trials    what settings are worth, tried, of MODELS and PHASES or all; VERDICTS: a table of verdicts, else cells are traced
# planted   whether planted bottlenecks are named, as of docs/guides/trials.md
#
# Of two GPUs each has half of the models; or, with `--`, stages of its own of all of them. A second one does not make ncu
# faster, as both take turns where a launch takes several passes. Stages run one after the other; what they print is in
# lanes/0.log (and lanes/1.log), what they make in lanes/{0,1}/results. What was made is not made again: call it until
# the logs end with 0.
set -euo pipefail
cd "$(dirname "$0")/../.."

zoo=("inceptionresnetv2 gnmt inceptionv3 resnetv2_50 bert pspnet spade unet srgan vgg16 lstm"
  "inceptionv4 resnetv2_152 pixelrnn mobilenetv2 gpt deeplab icnet dped srcnn vgg19")
truth=("gpt/inference inceptionv3/inference pspnet/inference resnetv2_152/inference icnet/train"
  "srcnn/train spade/inference vgg16/train inceptionv4/inference mobilenetv2/train")
# Those that were counted before, and those whose steps launch thousands of kernels.
later=("bert/train deeplab/inference dped/inference lstm/train pixelrnn/inference"
  "resnetv2_50/train bert/inference unet/inference srgan/inference vgg19/inference gnmt/inference")
varied=("bert unet resnetv2_50 inceptionv3" "mobilenetv2 gpt vgg19 deeplab")
changes=tf32,bf16,bf16+channels_last,graph,reduce-overhead
unlike=(results/{vgg16,vgg19,gnmt}/train.layers.csv results/gpt/inference.layers.csv)
make="snakemake -j4 --keep-going"
survey="--resources gpu=2 --config tool=ncu,nsys,torch 'ncu={set: survey, census: auto}' 'torch={baseline: 20}'"
survey+=" 'locks={overlap: true}'"

bytes=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,l1tex__t_bytes.sum
sass=smsp__sass_thread_inst_executed_op
single=${sass}_fadd_pred_on.sum,${sass}_fmul_pred_on.sum,${sass}_ffma_pred_on.sum
summed=${sass}s_fadd_fmul_ffma_pred_on.sum,${sass}s_hadd_hmul_hfma_pred_on.sum,${sass}s_dadd_dmul_dfma_pred_on.sum
tensor=sm__ops_path_tensor_src_bf16_dst_fp32.sum,sm__ops_path_tensor_src_fp16.sum,sm__ops_path_tensor_src_tf32_dst_fp32.sum
near=sm__warps_active.avg.pct_of_peak_sustained_active,gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed
near+=,lts__t_sectors.avg.pct_of_peak_sustained_elapsed,sm__inst_executed.avg.pct_of_peak_sustained_elapsed
parts="$bytes $bytes,$near $bytes,$single $bytes,$summed $bytes,${tensor##*,} $bytes,$tensor"
parts+=" $bytes,sm__inst_executed_pipe_tensor.sum $bytes,$near,$summed $bytes,$near,$summed,sm__inst_executed_pipe_tensor.sum"
parts+=" $bytes,$near,$summed,${tensor##*,} survey"

trials="budget: 100s, panel: [graph, tf32, bf16, graph+tf32, graph+bf16], most: 4"
advised="tool=nsys repeats=3 'trials={$trials}'"
if [ "${VERDICTS:-}" ]; then
  advised="tool=time 'trials={$trials, verdicts: $(realpath "$VERDICTS")}'"
fi

seconds=$1
shift
gpus=$(nvidia-smi --list-gpus | wc -l)
all=$* halves=$((gpus > 1))
stages=("$all" "$all")
if [[ $all == *" -- "* ]]; then
  stages=("${all%% -- *}" "${all##* -- }") halves=0
  ((gpus > 1)) || { echo "stages behind -- are of a second GPU, and there is one" >&2 && exit 2; }
fi
if ((!halves)); then
  zoo=("${zoo[*]}" "${zoo[*]}") varied=("${varied[*]}" "${varied[*]}")
  truth=("${truth[*]}" "${truth[*]}") later=("${later[*]}" "${later[*]}")
fi
for gpu in $(seq 0 $((gpus > 1))); do
  models=${zoo[gpu]// /,}
  todo="code=0; "
  for stage in ${stages[gpu]}; do
    case $stage in
      zoo) todo+="SECONDS=$((seconds - 40)) python -m tests.benchmarks.zoo_minutes run after ${zoo[gpu]} || code=1; " ;;
      truth) todo+="python -m tests.benchmarks.counted_truth ${TRUTH:-${truth[gpu]} ${later[gpu]}} || code=1; " ;;
      costs) todo+="python -m tests.benchmarks.ncu_costs mobilenetv2 train 8 $parts || code=1; " ;;
      tables) todo+="$make all $survey models=$models || code=1; " ;;
      layers) todo+="$make ${unlike[*]} $survey || code=1; " ;;
      deep) todo+="for set in roofline full; do $make results/mobilenetv2/train.ncu.\$set.csv || code=1; done; " ;;
      nulls) todo+="python -m tests.benchmarks.null_comparisons ${zoo[gpu]} || code=1; " ;;
      slowdown) todo+="python -m tests.benchmarks.known_slowdown --first $((${FIRST:-0} + 10 * gpu * halves)) --cells $((halves ? 10 : ${CELLS:-20})) || code=1; " ;;
      variants) todo+="$make compare --config run=variants tool=sample,nsys models=${varied[gpu]// /,} phases=train repeats=3 candidate=$changes || code=1; " ;;
      trials) todo+="$make trials --config run=trials $advised models=${MODELS:-$models} phases=${PHASES:-train,inference} || code=1; " ;;
      planted) todo+="PROFZOO_PLANTED_RESULTS=results/planted python -m pytest -s tests/gpu/test_planted.py || code=1; " ;;
      *) echo "no stage $stage: see the first lines of $0" >&2 && exit 2 ;;
    esac
  done
  bash tests/benchmarks/lane.sh "$gpu" "$seconds" "${todo}exit \$code" &
done
wait
tail -n 25 lanes/*.log
