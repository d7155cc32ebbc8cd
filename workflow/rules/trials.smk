# Needs: cells, and their plans. Makes: what settings are worth, measured in turn with the cell as it is.


rule expect_gains:
    """Say what the plans of each cell are expected to gain, so that trials begin with the best."""
    input:
        code("workflow/scripts/expect_gains.py"),
        plans=config["trials"]["plans"] or "<results>/tables/plans.csv",
    output:
        json="<results>/tables/trials.expected.json",
    log:
        "<logs>/tables/trials.expected.log",
    # In no group: what is tried waits for it, and waits for plans, which are in the report's.
    resources:
        **light(),
    params:
        config={key: config[key] for key in ("variants", "trials")},
        batches=JOBS.batches,
    script:
        "../scripts/expect_gains.py"


rule try_settings:
    """Time a cell with settings that may make it faster, one by one and together, in turn with the cell as it is."""
    input:
        sources,
        code("profzoo/experiments/trial_runner.py"),
        weights=weights,
        # By other expectations the same would be measured in another order.
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
    """Hold what was measured of settings against what was expected."""
    input:
        code("workflow/scripts/tabulate_trials.py"),
        steps=RUN.cell_files("<results>/{model}/{phase}.trials.csv"),
        sidecars=RUN.cell_files("<results>/{model}/{phase}.trials.csv.json"),
        expected=JOBS.expected_gains(),
    output:
        csv=table("trials"),
    log:
        "<logs>/tables/trials.log",
    # Likewise.
    resources:
        **light(),
    params:
        margin=config["equivalence_margin"],
    script:
        "../scripts/tabulate_trials.py"


rule trials:
    """Try what is advised, and a panel of settings, on every selected cell: --config models=lstm."""
    input:
        csv="<results>/tables/trials.csv",
    log:
        "<logs>/trials.log",
    localrule: True
    shell:
        "python -m profzoo.trials.cli {input.csv:q} 2>&1 | tee {log:q}"
