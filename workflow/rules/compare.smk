# Needs: the sides of a comparison, `baseline` and `candidate`. Makes: which is faster, by how much, and whether it is so.


rule tabulate_comparison:
    """Hold every cell's candidates against the baseline: ratio with its interval, verdict, what else differs."""
    input:
        code("workflow/scripts/tabulate_comparison.py"),
        **compared_times(),
        **compared_energies(),
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
        margin=config["margin"],
    script:
        "../scripts/tabulate_comparison.py"


rule tabulate_parts:
    """Put every difference down to parts of the step, ranges, classes of kernels, layers, and kernels."""
    input:
        code("workflow/scripts/tabulate_parts.py"),
        **compared_parts(),
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


rule write_comparison:
    """Write the page of a comparison: what differs, verdicts, figures and the largest parts; it opens offline."""
    input:
        code("workflow/scripts/write_comparison.py"),
        code(*(figures.all_figures()[Path(figure).stem].path for figure in drawn_of_comparison())),
        **comparison(),
        figures=drawn_of_comparison(),
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
    """Say which of two sides is faster: --config baseline=plain candidate=bf16; a variant or a folder of results each."""
    input:
        csv="<results>/tables/compare.csv",
        parts=comparison().get("compare_parts", []),
        page="<results>/compare.html",
    log:
        "<logs>/compare.log",
    localrule: True
    params:
        fail=["--fail-on", config["fail_on"]] if config["fail_on"] else [],
        parts=lambda wildcards, input: ["--parts", input.parts] if input.parts else [],
    shell:
        "python -m profzoo.compare.cli {input.csv:q} --page {input.page:q} {params.parts:q} {params.fail:q} 2>&1"
        " | tee {log:q}"
