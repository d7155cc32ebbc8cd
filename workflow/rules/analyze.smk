# Needs: exported CSV of the selected cells under the chosen tools. Makes: tables across these cells.


rule cover_ncu:
    """Compare the launches that ncu profiled with those that nsys traced: configurations, GPU time, missing ones."""
    input:
        code("workflow/scripts/cover_ncu.py"),
        nsys=RUN.pattern("launch_times"),
        ncu="<results>/{model}/{phase}.ncu.{set}.csv",
        census=SETS.census,
    output:
        csv="<results>/{model}/{phase}.ncu.{set}.coverage.csv",
    log:
        "<logs>/{model}/{phase}.ncu.{set}.coverage.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/cover_ncu.py"


rule join_kernels:
    """Join a cell's times by nsys with its counters by ncu, one row per launch configuration and range."""
    input:
        code("workflow/scripts/join_kernels.py"),
        nsys=RUN.pattern("launch_times"),
        sidecar=RUN.pattern("launch_times") + ".json",
        sets=SETS.joined_sets,
        census=SETS.joined_census,
        owned=IMPORTS.owned_launches,
    output:
        csv="<results>/{model}/{phase}.kernels.csv",
    log:
        "<logs>/{model}/{phase}.kernels.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/join_kernels.py"


rule sum_counters:
    """Add up a cell's counters by class of kernels: occupancy and its limiter, memory chart, pipes, warp states."""
    input:
        code("workflow/scripts/sum_counters.py"),
        sets=SETS.joined_sets,
        census=SETS.joined_census,
        owned=IMPORTS.owned_launches,
    output:
        occupancy="<results>/{model}/{phase}.occupancy.csv",
        memory_chart="<results>/{model}/{phase}.memory-chart.csv",
        pipes="<results>/{model}/{phase}.pipes.csv",
        warp_states="<results>/{model}/{phase}.warp-states.csv",
    log:
        "<logs>/{model}/{phase}.counters.log",
    group:
        "export"
    resources:
        **light(),
    params:
        steps=SET_JOBS.window,
    script:
        "../scripts/sum_counters.py"


rule add_up_layers:
    """Add up a cell's launches by layer, operator and kernel: owners by torch, times by nsys, counters by ncu."""
    input:
        code("workflow/scripts/add_up_layers.py"),
        unpack(TABLES.layer_inputs),
        launches="<results>/{model}/{phase}.torch.launches.csv",
        modules="<results>/{model}/{phase}.torch.modules.csv",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
    output:
        layers="<results>/{model}/{phase}.layers.csv",
        operators="<results>/{model}/{phase}.operators.csv",
        kernels="<results>/{model}/{phase}.layer-kernels.csv",
        coverage="<results>/{model}/{phase}.owners.csv",
    log:
        "<logs>/{model}/{phase}.layers.log",
    # Plans wait for it, so it comes before figures.
    priority: 1
    group:
        "export"
    resources:
        **light(),
    params:
        steps=SET_JOBS.window,
    script:
        "../scripts/add_up_layers.py"


rule add_up_ranges:
    """Add up a cell's launches by the program's own ranges (NVTX or record_function), and compare those of its steps."""
    input:
        code("workflow/scripts/add_up_ranges.py"),
        unpack(lambda wildcards: user_range_inputs(TABLES, wildcards)),
    output:
        csv="<results>/{model}/{phase}.ranges.csv",
        repetition="<results>/{model}/{phase}.repetition.csv",
        launches="<results>/{model}/{phase}.step-launches.csv",
    log:
        "<logs>/{model}/{phase}.ranges.log",
    group:
        "export"
    resources:
        **light(),
    params:
        steps=SET_JOBS.window,
    script:
        "../scripts/add_up_ranges.py"


rule replay_steps:
    """Simulate changes to a cell's traced steps: gains, and the CPU's time by cause."""
    input:
        code("workflow/scripts/replay_steps.py"),
        sqlite=RUN.pattern("trace_database"),
        sidecar=RUN.pattern("trace_database_sidecar"),
        time=RUN.pattern(tools.BASELINE),
        time_sidecar=RUN.pattern(f"{tools.BASELINE}_sidecar"),
        ranks=TABLES.rank_table_of_cell,
    output:
        changes="<results>/{model}/{phase}.replay.csv",
        host="<results>/{model}/{phase}.host.csv",
        program="<results>/{model}/{phase}.program.npz",
    log:
        "<logs>/{model}/{phase}.replay.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/replay_steps.py"


rule plan_first:
    """Rank the settings that are possible for a cell by its trace, which is there before counters are."""
    input:
        code("workflow/scripts/plan_first.py"),
        sqlite=RUN.pattern("trace_database"),
        sidecar=RUN.pattern("trace_database_sidecar"),
        time=RUN.pattern(tools.BASELINE),
        time_sidecar=RUN.pattern(f"{tools.BASELINE}_sidecar"),
    output:
        csv="<results>/{model}/{phase}.first-plan.csv",
    log:
        "<logs>/{model}/{phase}.first-plan.log",
    group:
        "export"
    resources:
        **light(),
    params:
        failed=JOBS.failed_settings,
    script:
        "../scripts/plan_first.py"


rule condense_step:
    """Extract the timeline of a cell's typical step, with the tracks of streams, metrics, memory and threads."""
    input:
        code("workflow/scripts/condense_step.py"),
        sqlite=RUN.pattern("trace_database"),
        sidecar=RUN.pattern("trace_database_sidecar"),
    output:
        json="<results>/{model}/{phase}.timeline.json",
        tracks="<results>/{model}/{phase}.nsys-tracks.csv",
    log:
        "<logs>/{model}/{phase}.timeline.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/condense_step.py"


rule export_threads:
    """Tabulate what a cell's threads did, and in which calls of the operating system they were while the GPU idled."""
    input:
        code("workflow/scripts/export_threads.py"),
        sqlite=RUN.pattern("trace_database"),
        sidecar=RUN.pattern("trace_database_sidecar"),
    output:
        threads="<results>/{model}/{phase}.nsys-threads.csv",
        off_cpu="<results>/{model}/{phase}.nsys-off-cpu.csv",
        samples="<results>/{model}/{phase}.nsys-samples.csv",
        idle="<results>/{model}/{phase}.nsys-idle.csv",
    log:
        "<logs>/{model}/{phase}.nsys-threads.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_threads.py"


rule find_chains:
    """Find operators of a cell whose results are written and read again: bytes, launches and time now, and if fused."""
    input:
        code("workflow/scripts/find_chains.py"),
        unpack(TABLES.chain_inputs),
        trace="<results>/{model}/{phase}.trace.json.gz",
    output:
        chains="<results>/{model}/{phase}.fusion.csv",
        kernels="<results>/{model}/{phase}.fusion-kernels.csv",
    log:
        "<logs>/{model}/{phase}.fusion.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/find_chains.py"


rule divide_tokens:
    """Divide the time of a cell's tokens: weights and cache at the peak of DRAM, kernels, gaps, waits."""
    input:
        code("workflow/scripts/divide_tokens.py"),
        unpack(TABLES.token_peaks),
        launches="<results>/{model}/{phase}.torch.launches.csv",
        time=RUN.pattern(tools.BASELINE),
        time_sidecar=RUN.pattern(f"{tools.BASELINE}_sidecar"),
    output:
        csv="<results>/{model}/{phase}.tokens.csv",
    log:
        "<logs>/{model}/{phase}.tokens.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/divide_tokens.py"


rule tabulate:
    """Join the measurements of every selected cell by all tools into tables, per step."""
    input:
        code("workflow/scripts/tabulate.py"),
        **TABLES.inputs(),
        user_ranges=user_range_tables(RUN),
        repetition=user_range_tables(RUN, "repetition"),
    output:
        cells=table("cells"),
        activity=table("activity"),
        kernels=table("kernels"),
        ranges=table("ranges"),
        steps=table("steps"),
        agreement=table("agreement"),
        coverage=table("coverage"),
        repetition=table("repetition"),
    log:
        "<logs>/tables/tabulate.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate.py"


rule tabulate_latency:
    """Estimate percentiles of the time of a step of every selected cell, each with its interval."""
    input:
        code("workflow/scripts/tabulate_latency.py"),
        time=TABLES.inputs()[tools.BASELINE],
        sidecars=TABLES.inputs()[f"{tools.BASELINE}_sidecar"],
    output:
        csv=table("latency"),
    log:
        "<logs>/tables/latency.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_latency.py"


rule tabulate_layers:
    """Join the layers of every selected cell into one table, and the share of time with an owner into another."""
    input:
        code("workflow/scripts/tabulate_layers.py"),
        layers=RUN.provided_files("layers"),
        coverage=RUN.provided_files("owners"),
    output:
        layers=table("layers"),
        owners=table("owners"),
    log:
        "<logs>/tables/layers.log",
    # Plans wait for it, so it comes before figures.
    priority: 1
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_layers.py"


rule tabulate_counters:
    """Join occupancy, memory charts, pipes and warp states of every selected cell, each into one table."""
    input:
        code("workflow/scripts/tabulate_counters.py"),
        **TABLES.chart_inputs(),
    output:
        occupancy=table("occupancy"),
        memory_chart=table("memory_chart"),
        pipes=table("pipes"),
        warp_states=table("warp_states"),
    log:
        "<logs>/tables/counters.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_counters.py"


rule tabulate_ranks:
    """Compare the processes of every selected cell on several GPUs."""
    input:
        code("workflow/scripts/tabulate_ranks.py"),
        ranks=TABLES.rank_inputs(),
    output:
        csv=table("ranks"),
    log:
        "<logs>/ranks.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_ranks.py"


rule tabulate_collectives:
    """Join collective operations and skew of every selected cell on several GPUs, each into one table."""
    input:
        code("workflow/scripts/tabulate_collectives.py"),
        **TABLES.collective_inputs(),
    output:
        collectives=table("collectives"),
        skew=table("skew"),
    log:
        "<logs>/tables/collectives.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_collectives.py"


rule tabulate_replays:
    """Join the simulated gains of every selected cell into one table, and the CPU's time by cause into another."""
    input:
        code("workflow/scripts/tabulate_replays.py"),
        changes=RUN.provided_files("replay"),
        host=RUN.provided_files("host"),
    output:
        changes=table("replay"),
        host=table("host"),
    log:
        "<logs>/tables/replay.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_replays.py"


rule tabulate_tokens:
    """Join the parts of the time of tokens of every selected cell that generates any into one table."""
    input:
        code("workflow/scripts/tabulate_tokens.py"),
        tokens=TABLES.token_files(),
    output:
        csv=table("tokens"),
    log:
        "<logs>/tables/tokens.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_tokens.py"


rule tabulate_fusion:
    """Join what could be fused in every selected cell into one table, with the verdict and the advice on each chain."""
    input:
        code("workflow/scripts/tabulate_fusion.py"),
        chains=RUN.provided_files("fusion"),
        sidecars=TABLES.timing_sidecars(),
    output:
        csv=table("fusion"),
    log:
        "<logs>/tables/fusion.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_fusion.py"


rule tabulate_roofline:
    """Compare counted work with the GPU's measured peaks: bound and efficiency of cells, classes and launches."""
    input:
        code("workflow/scripts/tabulate_roofline.py"),
        kernels="<results>/tables/kernels.csv",
        cells="<results>/tables/cells.csv",
        peaks=f"<results>/peaks/{config['gpu']}.csv",
        sidecar=f"<results>/peaks/{config['gpu']}.csv.json",
    output:
        csv=table("roofline"),
    log:
        "<logs>/tables/roofline.log",
    # Plans wait for it, so it comes before figures.
    priority: 1
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_roofline.py"


rule tabulate_verdicts:
    """Judge what limits every cell, its kernels and its layers: evidence, expected gain and next step."""
    input:
        code("workflow/scripts/tabulate_verdicts.py"),
        **TABLES.verdict_inputs(),
        **TABLES.layer_verdict_inputs(),
        **TABLES.replay_verdict_inputs(),
        **TABLES.operator_verdict_inputs(),
        **TABLES.chain_verdict_inputs(),
        sidecars=TABLES.timing_sidecars(),
        cells="<results>/tables/cells.csv",
        ranges="<results>/tables/ranges.csv",
        steps="<results>/tables/steps.csv",
        kernels="<results>/tables/kernels.csv",
    output:
        csv=table("verdicts"),
        waits=table("waits"),
    log:
        "<logs>/tables/verdicts.log",
    # Plans wait for it, so it comes before figures.
    priority: 1
    group:
        "report"
    resources:
        **light(),
    params:
        failed=JOBS.failed_settings,
    script:
        "../scripts/tabulate_verdicts.py"


rule tabulate_plans:
    """Rank the settings that are possible for every cell, alone and together, by what they are expected to gain."""
    input:
        code("workflow/scripts/tabulate_plans.py"),
        **TABLES.plan_inputs(),
        sidecars=TABLES.timing_sidecars(),
        cells="<results>/tables/cells.csv",
        steps="<results>/tables/steps.csv",
        kernels="<results>/tables/kernels.csv",
        verdicts="<results>/tables/verdicts.csv",
    output:
        csv=table("plans"),
    log:
        "<logs>/tables/plans.log",
    # The report waits for it, so it comes before figures.
    priority: 1
    group:
        "report"
    resources:
        **light(),
    params:
        failed=JOBS.failed_settings,
    script:
        "../scripts/tabulate_plans.py"


rule tabulate_columns:
    """Write unit, meaning, tool and clock of every column of every table."""
    input:
        code("workflow/scripts/tabulate_columns.py"),
    output:
        csv=report(
            "<results>/tables/columns.csv",
            category="Tables",
            caption="../report/table.rst",
            labels={"table": "columns", "a row": "a table and column"},
        ),
    log:
        "<logs>/tables/columns.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/tabulate_columns.py"
