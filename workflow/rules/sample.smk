# Needs: a model's file, its settings, NVML. Makes: samples of the GPU's state during an unprofiled run, and their CSV.
from profzoo.tools.sample import command as sample


rule profile_sample:
    """Sample power, clocks, temperature, utilisation and memory of the GPU during an unprofiled run of a cell."""
    input:
        sources,
        code("profzoo/tools/sample/sampler.py"),
        code("profzoo/experiments/interleaved_runs.py") if JOBS.repeats else [],
        weights=weights,
    output:
        samples="<results>/{model}/{phase}.sample-raw.csv",
        steps="<results>/{model}/{phase}.sample-steps.csv",
        sidecar="<results>/{model}/{phase}.sample-raw.csv.json",
    log:
        "<logs>/{model}/{phase}.sample.log",
    benchmark:
        "<benchmarks>/{model}/{phase}.sample.tsv"
    retries: 0
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_by("sample", options=sample.options(config["sample"]), **JOBS.repeats),
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


rule export_sample:
    """Export the samples of the window."""
    input:
        code("workflow/scripts/export_sample.py"),
        samples="<results>/{model}/{phase}.sample-raw.csv",
        sidecar="<results>/{model}/{phase}.sample-raw.csv.json",
    output:
        csv="<results>/{model}/{phase}.sample.csv",
        sidecar="<results>/{model}/{phase}.sample.csv.json",
    log:
        "<logs>/{model}/{phase}.sample.export.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_sample.py"
