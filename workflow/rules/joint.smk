# Needs: measurements of a cell. Makes: in one process what rules of other files would each make in a process of its own.
#
# These rules are there in runs that ask for the whole report. Inputs, outputs, logs and parameters are those of the
# rules whose names stand here; profzoo/workflow/joint_rules.py says how they are joined. If one of the scripts fails,
# the end of the run makes the tables that need nothing of it by their own rules.
JOINT = joint_rules.Joiner(
    {rule.name: rule for rule in workflow.rules},
    {*TABLES.files_of_cell(), *TABLES.first_plans()},
    SETS.ncu["set"],
    joint_rules.match_joint_cells(AVAILABLE, [*SPREAD, *IMPORTS.summaries(), *IMPORTS.counted()]),
)
FROM_NSYS = JOINT.join("export_nsys", "export_streams", "export_threads", "replay_steps", "condense_step", "plan_first")
FROM_TORCH = JOINT.join("export_torch", "find_chains")
ACROSS_TOOLS = JOINT.join("cover_ncu", "sum_counters", "join_kernels", "add_up_layers", "add_up_ranges")


if FROM_NSYS.rules:

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


if FROM_TORCH.rules:

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


if ACROSS_TOOLS.rules:

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


snakemake_internals.prefer_rules(
    {
        "derive_from_nsys": FROM_NSYS.rules,
        "derive_from_torch": FROM_TORCH.rules,
        "derive_across_tools": ACROSS_TOOLS.rules,
    }
)
