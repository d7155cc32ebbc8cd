# The only rules that use a GPU. The longest jobs start first, so that no GPU is idle at the end during a long last job.
# Where ncu is to count, the baseline and nsys precede it, because first plans need both.
# Needs: a model's file, its settings, the tool. Makes: reports, each with a sidecar that says how it was made.


rule train_weights:
    """Train the weights that inference loads with `weights: trained`, with the smallest number of steps."""

    # The timing of training does not make the weights, so that a new timing does not cause new profiles of inference.
    input:
        sources,
    output:
        weights="<results>/{model}/weights.pt",
        sidecar="<results>/{model}/weights.pt.json",
    log:
        "<logs>/{model}/weights.log",
    benchmark:
        "<benchmarks>/{model}/weights.tsv"
    priority: 4
    # A failed model would fail again, and a cancelled job should not run again.
    retries: 0
    threads: cores_of_one
    resources:
        **on_one_gpu(),
    params:
        job=JOBS.describe_training,
        more=[],
        made=name_outputs,
    shell:
        COLLECT


rule time_training:
    """Time a cell's training without a profiler."""
    input:
        sources,
        code("profzoo/experiments/interleaved_runs.py") if JOBS.repeats else [],
    output:
        steps="<results>/{model}/train.time.csv",
        memory="<results>/{model}/train.memory.csv",
        sidecar="<results>/{model}/train.time.csv.json",
    log:
        "<logs>/{model}/train.time.log",
    benchmark:
        "<benchmarks>/{model}/train.time.tsv"
    priority: PRIORITY_OF_FIRST
    retries: 0
    threads: cores("train")
    resources:
        **on_gpus("train"),
    params:
        job=JOBS.describe_by("time", phase="train", **JOBS.repeats),
        more=[],
        made=name_outputs,
    shell:
        COLLECT


rule time_inference:
    """Time a cell's inference without a profiler."""
    input:
        sources,
        code("profzoo/experiments/interleaved_runs.py") if JOBS.repeats else [],
        weights=weights,
    output:
        steps="<results>/{model}/inference.time.csv",
        memory="<results>/{model}/inference.memory.csv",
        sidecar="<results>/{model}/inference.time.csv.json",
    log:
        "<logs>/{model}/inference.time.log",
    benchmark:
        "<benchmarks>/{model}/inference.time.tsv"
    priority: PRIORITY_OF_FIRST
    retries: 0
    threads: cores("inference")
    resources:
        **on_gpus("inference"),
    params:
        job=JOBS.describe_by("time", phase="inference", **JOBS.repeats),
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


# Apart from the timing, which takes a fraction of it: only comparisons with results of another time read it. Processes
# that run in turn do it themselves.
rule repeat_steps:
    """Repeat a cell's first steps in double precision and from rounded weights, to compare what they compute."""
    input:
        sources,
        weights=weights,
    output:
        sidecar="<results>/{model}/{phase}.numerics.json",
    log:
        "<logs>/{model}/{phase}.numerics.log",
    benchmark:
        "<benchmarks>/{model}/{phase}.numerics.tsv"
    wildcard_constraints:
        **patterns.MEASURED,
    retries: 0
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_numerics,
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


rule predict_memory:
    """Measure the memory of a training step again, and predict it with settings that may need less."""
    input:
        sources,
    output:
        memory="<results>/{model}/train.memory-remedies.csv",
        sidecar="<results>/{model}/train.memory-remedies.csv.json",
    log:
        "<logs>/{model}/train.memory-remedies.log",
    benchmark:
        "<benchmarks>/{model}/train.memory-remedies.tsv"
    wildcard_constraints:
        **patterns.MEASURED,
    retries: 0
    threads: cores("train")
    resources:
        **on_gpus("train"),
    params:
        job=JOBS.describe_remedies,
        more=[],
        made=name_outputs,
    shell:
        COLLECT


rule time_in_turn:
    """Time a cell without a profiler on all sides of a comparison, in processes that take turns."""
    input:
        sources,
        code("profzoo/experiments/interleaved_runs.py"),
        weights=lambda wildcards: [*JOBS.weights_by_side(wildcards).values()],
    output:
        steps=f"<results>/{{model}}/{{phase}}.{sides.name_sides(SIDES)}.rounds.csv",
        sidecar=f"<results>/{{model}}/{{phase}}.{sides.name_sides(SIDES)}.rounds.csv.json",
    log:
        f"<logs>/{{model}}/{{phase}}.{sides.name_sides(SIDES)}.rounds.log",
    retries: 0
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_turns,
        more=lambda wildcards, input: name_loaded_of_sides(JOBS.weights_by_side(wildcards), input),
        made=name_outputs,
    shell:
        COLLECT


rule measure_peaks:
    """Measure the peaks of the GPU: DRAM, L2, and products in each precision."""
    input:
        code("profzoo/calibration/peaks.py", "profzoo/collect/environment.py"),
    output:
        csv="<results>/peaks/{gpu}.csv",
        sidecar="<results>/peaks/{gpu}.csv.json",
    log:
        "<logs>/peaks/{gpu}.log",
    retries: 0
    threads: cores_of_one
    resources:
        **on_one_gpu(minutes=10),
    params:
        job=JOBS.describe_peaks(),
        more=[],
        made=name_outputs,
    shell:
        COLLECT


rule measure_links:
    """Measure how fast the links between the GPUs of cells are, for collective operations by size."""
    input:
        code("profzoo/calibration/links.py", "profzoo/collect/environment.py"),
    output:
        csv="<results>/peaks/{gpu}.links.{nodes}x{gpus}.csv",
        sidecar="<results>/peaks/{gpu}.links.{nodes}x{gpus}.csv.json",
    log:
        "<logs>/peaks/{gpu}.links.{nodes}x{gpus}.log",
    wildcard_constraints:
        **patterns.LINKED,
    retries: 0
    threads: RESOURCES.cores_of_links
    resources:
        **RESOURCES.on_links(minutes=10),
    params:
        job=JOBS.describe_links,
        more=[],
        made=name_outputs,
    shell:
        COLLECT


rule probe_ncu:
    """Profile a few launches of a section set whose cost on this GPU is unknown."""
    input:
        code("profzoo/calibration/launch_costs.py", "profzoo/collect/environment.py"),
    output:
        report="<results>/peaks/{gpu}.{set}.ncu-rep",
        sidecar="<results>/peaks/{gpu}.{set}.ncu-rep.json",
    log:
        "<logs>/peaks/{gpu}.{set}.log",
    envmodules:
        *modules("ncu"),
    threads: cores_of_one
    resources:
        **on_one_gpu(minutes=10),
    params:
        job=SET_JOBS.describe_probe,
        more=[],
        made=name_outputs,
    shell:
        COLLECT


rule plan_ncu:
    """Plan a section set: launches, replay, and the expected time of ncu, from the census and measured costs."""
    input:
        SETS.until_profiled(code("workflow/scripts/plan_ncu.py")),
        job=SETS.job_file,
        launches=SETS.until_profiled(SETS.plan_inputs),
        probe=SETS.until_profiled(SETS.probe),
    output:
        plan="<results>/{model}/{phase}.{set}.plan.json",
    log:
        "<logs>/{model}/{phase}.{set}.plan.log",
    group:
        "plan"
    resources:
        **light(),
    params:
        ncu=SET_JOBS.plan_options,
    script:
        "../scripts/plan_ncu.py"


rule settle_ncu:
    """Write the settings of a planned section set to a file, so that a change to them collects the set again."""
    input:
        code("workflow/scripts/settle_ncu.py"),
        sources=sources,
    output:
        job="<results>/{model}/{phase}.{set}.job.json",
    log:
        "<logs>/{model}/{phase}.{set}.job.log",
    group:
        "plan"
    resources:
        **light(),
    params:
        job=SET_JOBS.describe_section_set,
    script:
        "../scripts/settle_ncu.py"


rule profile_ncu:
    """Profile a cell's window with Nsight Compute, one section set."""
    input:
        sources,
        weights=weights,
        job=SETS.job_file,
        # The plan follows from the job's settings. A plan with a better estimate must not cause another profiling run.
        plan=SETS.until_profiled(SETS.plan),
    output:
        report="<results>/{model}/{phase}.{set}.ncu-rep",
        sidecar="<results>/{model}/{phase}.{set}.ncu-rep.json",
    log:
        "<logs>/{model}/{phase}.{set}.ncu.log",
    benchmark:
        "<benchmarks>/{model}/{phase}.{set}.ncu.tsv"
    wildcard_constraints:
        **patterns.MEASURED,
    priority: 3
    envmodules:
        *modules("ncu"),
    threads: cores()
    resources:
        **on_gpus(minutes=RESOURCES.planned_minutes),
    params:
        job=SET_JOBS.describe_section_set,
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


# A sampled set may need several runs of ncu: the first run's report, and a folder with the reports of further runs.
use rule profile_ncu as profile_ncu_sampled with:
    output:
        report="<results>/{model}/{phase}.{set}.ncu-rep",
        sidecar="<results>/{model}/{phase}.{set}.ncu-rep.json",
        more=directory("<results>/{model}/{phase}.{set}.ncu-more"),
    wildcard_constraints:
        **patterns.match_sampled_sets(SETS.sampled_sets()),


ruleorder: profile_ncu_sampled > profile_ncu


use rule profile_ncu as profile_ncu_ranks with:
    output:
        ranks=directory("<results>/{model}/{phase}.{set}.ncu-ranks"),
        sidecar="<results>/{model}/{phase}.{set}.ncu-ranks.json",
    log:
        "<logs>/{model}/{phase}.{set}.ncu-ranks.log",
    benchmark:
        "<benchmarks>/{model}/{phase}.{set}.ncu-ranks.tsv"
    wildcard_constraints:
        **patterns.match_several_gpus(SPREAD),


rule profile_nsys:
    """Trace a cell's window with Nsight Systems."""
    input:
        sources,
        weights=weights,
    output:
        report="<results>/{model}/{phase}.nsys-rep",
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    log:
        "<logs>/{model}/{phase}.nsys.log",
    benchmark:
        "<benchmarks>/{model}/{phase}.nsys.tsv"
    wildcard_constraints:
        **patterns.MEASURED,
    priority: PRIORITY_OF_NSYS
    retries: 0
    envmodules:
        *modules("nsys"),
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_by("nsys", options=nsys.options(config["nsys"]), capture=config["nsys"]["capture"]),
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


use rule profile_nsys as profile_nsys_ranks with:
    output:
        report="<results>/{model}/{phase}.nsys-rep",
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
        ranks=directory("<results>/{model}/{phase}.nsys-ranks"),
    wildcard_constraints:
        **patterns.match_several_gpus(SPREAD),


ruleorder: profile_nsys_ranks > profile_nsys


# Earlier cycles (`torch.repeat`) and the allocator's snapshot (`torch.snapshot`) go to a folder.
rule profile_torch:
    """Profile a cell's window with torch.profiler."""
    input:
        sources,
        weights=weights,
    output:
        **TORCH_FILES.further_outputs(directory),
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
    log:
        "<logs>/{model}/{phase}.torch.log",
    benchmark:
        "<benchmarks>/{model}/{phase}.torch.tsv"
    wildcard_constraints:
        **patterns.MEASURED,
    priority: 1
    retries: 0
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_by("torch"),
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


# With `torch.baseline` the job also makes the baseline, which is timed before the profiler starts.
use rule profile_torch as profile_torch_timed with:
    output:
        **TORCH_FILES.further_outputs(directory),
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
        steps="<results>/{model}/{phase}.torch-time.csv",
        timed="<results>/{model}/{phase}.torch-time.csv.json",
    wildcard_constraints:
        **patterns.match_timed_inside(config["torch"]),


# Each process of a cell on several GPUs leaves both in a folder; those of the first are the cell's.
use rule profile_torch as profile_torch_ranks with:
    output:
        **TORCH_FILES.further_outputs(directory),
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
        ranks=directory("<results>/{model}/{phase}.torch-ranks"),
    wildcard_constraints:
        **patterns.match_several_gpus(SPREAD),


use rule profile_torch as profile_torch_timed_ranks with:
    output:
        **TORCH_FILES.further_outputs(directory),
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
        steps="<results>/{model}/{phase}.torch-time.csv",
        timed="<results>/{model}/{phase}.torch-time.csv.json",
        ranks=directory("<results>/{model}/{phase}.torch-ranks"),
    wildcard_constraints:
        **patterns.match_several_gpus(SPREAD if config["torch"]["baseline"] else []),


ruleorder: profile_torch_timed_ranks > profile_torch_ranks > profile_torch_timed > profile_torch
