# Needs: the sides of a comparison, `reference` and `candidate`. Makes: the faster side, the gain, and how sure it is.


rule tabulate_comparison:
    """Compare every cell's candidates with the reference side: ratio with its interval, outcome, other differences."""
    input:
        code("workflow/scripts/tabulate_comparison.py"),
        **COMPARISON.times(),
        **COMPARISON.energies(),
        **COMPARISON.numbers(),
    output:
        csv=table("compare"),
    log:
        "<logs>/tables/compare.log",
    group:
        "report"
    resources:
        **light(),
    params:
        sides=[side.name for side in SIDES],
        margin=config["equivalence_margin"],
    script:
        "../scripts/tabulate_comparison.py"


rule tabulate_compared_latency:
    """Estimate percentiles of the time of a step on every side, each with its interval."""
    input:
        code("workflow/scripts/tabulate_compared_latency.py"),
        **COMPARISON.times(),
    output:
        csv=table("compare_latency"),
    log:
        "<logs>/tables/compare_latency.log",
    group:
        "report"
    resources:
        **light(),
    params:
        sides=[side.name for side in SIDES],
    script:
        "../scripts/tabulate_compared_latency.py"


rule tabulate_parts:
    """Attribute every difference to parts of the step, ranges, kernel classes, layers and kernels."""
    input:
        code("workflow/scripts/tabulate_parts.py"),
        **COMPARISON.parts(),
        compared="<results>/tables/compare.csv",
    output:
        csv=table("compare_parts"),
    log:
        "<logs>/tables/compare_parts.log",
    group:
        "report"
    resources:
        **light(),
    params:
        sides=[side.name for side in SIDES],
    script:
        "../scripts/tabulate_parts.py"


rule tabulate_counter_changes:
    """Compare the counters of both sides of every cell: bytes, operations, hit rates and occupancy, where they exist."""
    input:
        code("workflow/scripts/tabulate_counter_changes.py"),
        **COMPARISON.counters(),
        compared="<results>/tables/compare.csv",
    output:
        csv=table("compare_counters"),
    log:
        "<logs>/tables/compare_counters.log",
    group:
        "report"
    resources:
        **light(),
    params:
        sides=[side.name for side in SIDES],
        counted=lambda wildcards: COMPARISON.counted_files(),
    script:
        "../scripts/tabulate_counter_changes.py"


rule write_comparison:
    """Write the page of a comparison: differences, outcomes, figures and largest parts; it opens offline."""
    input:
        code("workflow/scripts/write_comparison.py"),
        code(*code_of_figures(PAGES.comparison_figure_files())),
        **COMPARISON.tables(),
        figures=PAGES.comparison_figure_files(),
    output:
        report(
            "<results>/compare.html",
            category="Report",
            caption="../report/page.rst",
            labels={"page": "which cells are faster, and where the differences lie"},
        ),
    log:
        "<logs>/compare.html.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/write_comparison.py"


rule compare:
    """Find the faster of two sides, each a variant or a folder of results: --config reference=plain candidate=bf16."""
    input:
        csv="<results>/tables/compare.csv",
        parts=COMPARISON.tables().get("compare_parts", []),
        counters=COMPARISON.tables().get("compare_counters", []),
        page="<results>/compare.html",
        latency=COMPARISON.latency_tables(),
    log:
        "<logs>/compare.log",
    localrule: True
    params:
        fail=name_failing(config),
        tables=lambda wildcards, input: name_tables(input),
    shell:
        "python -m profzoo.compare.cli {input.csv:q} --page {input.page:q} {params.tables:q} {params.fail:q} 2>&1"
        " | tee {log:q}"
