# Needs: measurements of cells, imported traces, tables. Makes: in one process what rules of other files would each make in
# a process of its own.
#
# These rules are there in runs that ask for the whole report. Inputs, outputs, logs and parameters are those of the
# rules whose names stand here; profzoo/workflow/joint_rules.py says how they are joined. If one of the scripts fails,
# the end of the run makes the tables that need nothing of it by their own rules.
#
# What a run on this machine makes for the first time is joined further: an imported cell, the tables across cells, and
# the figures. What is there, its own rule makes again, and nothing else. With another storage, as on Kubernetes, which
# changes paths, nothing is joined.
STORED = workflow.storage_settings.default_storage_provider is not None
NOT_JOINED = [*SPREAD, *IMPORTS.summaries(), *IMPORTS.counted()]
JOINT = joint_rules.Joiner(
    {rule.name: rule for rule in workflow.rules},
    # Of cells that nothing is collected of, some may lack what a joint job would read.
    {*TABLES.files_of_cell(), *TABLES.first_plans()} if config["collect"] and not STORED else set(),
    SETS.ncu["set"],
    joint_rules.match_joint_cells(AVAILABLE, NOT_JOINED),
    RESULTS,
)
OF_NSYS = ("export_nsys", "export_streams", "export_threads", "replay_steps", "condense_step", "plan_first")
OF_TORCH = ("export_torch", "find_chains")
OF_TOOLS = ("cover_ncu", "sum_counters", "join_kernels", "add_up_layers", "add_up_ranges")
FROM_NSYS, FROM_TORCH, ACROSS_TOOLS = JOINT.join(*OF_NSYS), JOINT.join(*OF_TORCH), JOINT.join(*OF_TOOLS)

# A job on another machine would find other files, and not know its rule.
JOINT_HERE = workflow.is_main_process and RUNS_HERE and not STORED
FROM_IMPORT = JOINT.join(
    "export_torch", *OF_NSYS, "find_chains", *OF_TOOLS, first=("import_torch", "import_nsys_of_torch", "import_time")
)
NEW_IMPORTS = [
    name
    for name in (IMPORTS.torch_alone() if JOINT_HERE else [])
    if not Path(RESULTS, name, f"{IMPORTED}.trace.json.gz").exists()
]
ACROSS_CELLS = JOINT.join_absent(
    (
        *("tabulate_layers", "tabulate_counters", "tabulate_replays"),
        *("tabulate_latency", "tabulate", "tabulate_roofline"),
        *("tabulate_tokens", "tabulate_verdicts", "tabulate_fusion", "tabulate_plans", "tabulate_columns"),
    ),
    PAGES.all_inputs(rules.write_report.input, {"report", "import"}.isdisjoint(sys.argv)) if JOINT_HERE else [],
)
DRAWN = [path for path in PAGES.figure_files() if JOINT_HERE and not RUN.path(path).exists()]
# With more cores, as many jobs draw side by side. A batch system has no number of cores.
CORES = snakemake_internals.limit_of(workflow, "_cores") or 1
SHARES = {
    f"draw_figures_{first + 1}" if first else "draw_figures": JOINT.join_each(
        "draw_figure", "figure", [Path(path).stem for path in DRAWN[first::CORES]]
    )
    for first in range(min(CORES, len(DRAWN)))
}


if FROM_NSYS.parts:

    rule derive_from_nsys:
        """Make the tables of a cell's nsys trace: launches, steps, streams, threads, simulations, first plan."""
        input:
            code("workflow/scripts/run_joined.py"),
            unpack(FROM_NSYS.list_inputs),
        output:
            **FROM_NSYS.outputs,
        log:
            **FROM_NSYS.logs,
        wildcard_constraints:
            **JOINT.cells,
        # A first plan is of use only before counters have come.
        priority: PRIORITY_OF_FIRST
        group:
            "export"
        resources:
            **light(),
        params:
            **FROM_NSYS.params,
        script:
            "../scripts/run_joined.py"

    workflow.ruleorder("derive_from_nsys", *FROM_NSYS.rules)


if FROM_TORCH.parts:

    rule derive_from_torch:
        """Make the tables of a cell's torch.profiler trace, while ncu counts: operators, launches, chains to fuse."""
        input:
            code("workflow/scripts/run_joined.py"),
            unpack(FROM_TORCH.list_inputs),
        output:
            **FROM_TORCH.outputs,
        log:
            **FROM_TORCH.logs,
        wildcard_constraints:
            **JOINT.cells,
        group:
            "export"
        resources:
            **light(),
        params:
            **FROM_TORCH.params,
        script:
            "../scripts/run_joined.py"

    workflow.ruleorder("derive_from_torch", *FROM_TORCH.rules)


if ACROSS_TOOLS.parts:

    rule derive_across_tools:
        """Make a cell's tables that join tools: coverage, counters, kernels, layers, ranges."""
        input:
            code("workflow/scripts/run_joined.py"),
            unpack(ACROSS_TOOLS.list_inputs),
        output:
            **ACROSS_TOOLS.outputs,
        log:
            **ACROSS_TOOLS.logs,
        wildcard_constraints:
            **JOINT.cells,
        # Plans wait for it, so it comes before figures.
        priority: 1
        group:
            "export"
        resources:
            **light(),
        params:
            **ACROSS_TOOLS.params,
        script:
            "../scripts/run_joined.py"

    workflow.ruleorder("derive_across_tools", *ACROSS_TOOLS.rules)


rule derive_from_import:
    """Convert an imported trace of torch.profiler, and make all tables of its cell."""
    input:
        code("workflow/scripts/run_joined.py"),
        unpack(FROM_IMPORT.list_inputs),
    output:
        **FROM_IMPORT.outputs,
    log:
        **FROM_IMPORT.logs,
    wildcard_constraints:
        **joint_rules.match_joint_cells(
            AVAILABLE, [*NOT_JOINED, *(model for model, _ in AVAILABLE if model not in NEW_IMPORTS)]
        ),
    group:
        "export"
    resources:
        **light(minutes=30, mem_mb=8000),
    params:
        **FROM_IMPORT.params,
    script:
        "../scripts/run_joined.py"


OF_IMPORT = [
    *(["derive_from_nsys"] if FROM_NSYS.parts else []),
    *(["derive_from_torch"] if FROM_TORCH.parts else []),
    *(["derive_across_tools"] if ACROSS_TOOLS.parts else []),
    *FROM_IMPORT.rules,
]
workflow.ruleorder("derive_from_import", *OF_IMPORT)


if ACROSS_CELLS.parts:

    rule tabulate_cells:
        """Make the tables across cells that a report needs: measurements, layers, verdicts, plans."""
        input:
            code("workflow/scripts/run_joined.py"),
            unpack(ACROSS_CELLS.list_inputs),
        output:
            **ACROSS_CELLS.outputs,
        log:
            **ACROSS_CELLS.logs,
        # The report waits for it, so it comes before figures.
        priority: 1
        group:
            "report"
        resources:
            **light(),
        params:
            **ACROSS_CELLS.params,
        script:
            "../scripts/run_joined.py"

    workflow.ruleorder("tabulate_cells", *ACROSS_CELLS.rules)


for NAME, SHARE in SHARES.items():

    rule:
        name:
            NAME
        input:
            code("workflow/scripts/run_joined.py"),
            unpack(SHARE.list_inputs),
        output:
            **SHARE.outputs,
        log:
            **SHARE.logs,
        group:
            "report"
        resources:
            **light(),
        params:
            **SHARE.params,
        script:
            "../scripts/run_joined.py"

    workflow.ruleorder(NAME, "draw_figure")


snakemake_internals.prefer_rules(
    {
        "derive_from_import": OF_IMPORT,
        "derive_from_nsys": FROM_NSYS.rules,
        "derive_from_torch": FROM_TORCH.rules,
        "derive_across_tools": ACROSS_TOOLS.rules,
        "tabulate_cells": ACROSS_CELLS.rules,
        **dict.fromkeys(SHARES, ["draw_figure"]),
    }
)
