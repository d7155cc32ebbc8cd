# Needs: cells, and their plans. Makes: gains of settings, measured in alternation with the unchanged cell.


rule expect_gains:
    """Compute the expected gain of each plan, so that trials begin with the largest one, and how processes differ."""
    input:
        code("workflow/scripts/expect_gains.py"),
        plans=config["trials"]["plans"] or "<results>/tables/plans.csv",
        # Plans from elsewhere are tried without a baseline.
        timed=[] if config["trials"]["plans"] else TABLES.inputs()[tools.BASELINE],
        sidecars=[] if config["trials"]["plans"] else TABLES.inputs()[f"{tools.BASELINE}_sidecar"],
    output:
        json="<results>/tables/trials.expected.json",
    log:
        "<logs>/tables/trials.expected.log",
    # This job is in no group. Trials wait for it, and it waits for plans, which are in the group of the report.
    resources:
        **light(),
    params:
        config={key: config[key] for key in ("variants", "trials")},
        batches=JOBS.batches,
        failed=JOBS.failed_settings,
    script:
        "../scripts/expect_gains.py"


rule try_settings:
    """Time a cell with settings that may make it faster, singly and together, alternating with the unchanged cell."""
    input:
        sources,
        code("profzoo/experiments/trial_runner.py"),
        weights=weights,
        # `ancient`, because other expected gains would only change the order of the trials.
        expected=ancient(JOBS.expected_gains()),
    output:
        steps="<results>/{model}/{phase}.trials.csv",
        sidecar="<results>/{model}/{phase}.trials.csv.json",
    log:
        "<logs>/{model}/{phase}.trials.log",
    retries: 0
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_trials,
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT


rule tabulate_trials:
    """Compare the measured gains of settings with the expected gains."""
    input:
        code("workflow/scripts/tabulate_trials.py"),
        steps=RUN.cell_files("<results>/{model}/{phase}.trials.csv"),
        sidecars=RUN.cell_files("<results>/{model}/{phase}.trials.csv.json"),
        expected=JOBS.expected_gains(),
    output:
        csv=table("trials"),
    log:
        "<logs>/tables/trials.log",
    # This job is in no group, for the same reason as `expect_gains`.
    resources:
        **light(),
    params:
        margin=config["equivalence_margin"],
    script:
        "../scripts/tabulate_trials.py"


rule trials:
    """Try advised settings, and a panel of settings, on every selected cell: --config models=lstm."""
    input:
        csv="<results>/tables/trials.csv",
    log:
        "<logs>/trials.log",
    localrule: True
    shell:
        "python -m profzoo.trials.cli {input.csv:q} 2>&1 | tee {log:q}"
