# Needs: tables. Makes: figures, and the report that shows them.


rule draw_figure:
    """Draw a figure of the tables that its module declares."""
    input:
        lambda wildcards: code("workflow/scripts/draw_figure.py", figures.all_figures()[wildcards.figure].path),
        unpack(PAGES.figure_inputs),
    output:
        svg=report(
            "<results>/figures/{figure}.svg",
            category="Figures",
            caption="../report/figure.rst",
            labels=lambda wildcards: {"figure": figures.all_figures()[wildcards.figure].title},
        ),
        png="<results>/figures/{figure}.png",
        pdf="<results>/figures/{figure}.pdf",
    log:
        "<logs>/figures/{figure}.log",
    group:
        "report"
    resources:
        **light(),
    params:
        caption=lambda wildcards: figures.all_figures()[wildcards.figure].caption,
        options=PAGES.figure_options,
        dpi=config["figures"]["dpi"],
    script:
        "../scripts/draw_figure.py"


rule draw_kernel_timeline:
    """Draw what units of the GPU do over time inside the most expensive kernels, by ncu's PM sampling."""
    input:
        code("workflow/scripts/draw_kernel_timeline.py"),
        instances="<results>/{model}/{phase}.ncu-instances.{set}.csv",
        launches="<results>/{model}/{phase}.ncu.{set}.csv",
        sidecar="<results>/{model}/{phase}.ncu.{set}.csv.json",
    output:
        "<results>/{model}/{phase}.ncu-timeline.{set}.svg",
        "<results>/{model}/{phase}.ncu-timeline.{set}.png",
        "<results>/{model}/{phase}.ncu-timeline.{set}.pdf",
    log:
        "<logs>/{model}/{phase}.ncu-timeline.{set}.log",
    group:
        "report"
    resources:
        **light(),
    params:
        dpi=config["figures"]["dpi"],
    script:
        "../scripts/draw_kernel_timeline.py"


rule figures:
    """Draw every figure that the chosen tools have data for."""
    input:
        PAGES.figure_files(),


rule perfetto:
    """Write the traces of nsys for Perfetto, which the next report links."""
    input:
        lambda wildcards: run_checked(PAGES.required_traces),


rule write_report:
    """Write the report: one HTML page that opens offline."""
    input:
        code("workflow/scripts/write_report.py"),
        code(*code_of_figures(PAGES.figure_files())),
        **COMPARISON.tables(),
        **PAGES.kernel_inputs(),
        **PAGES.counter_inputs(),
        **PAGES.chart_tables(),
        **PAGES.verdict_table(),
        **PAGES.plan_table(),
        **PAGES.latency_table(),
        **PAGES.token_table(),
        cells="<results>/tables/cells.csv",
        agreement="<results>/tables/agreement.csv",
        activity="<results>/tables/activity.csv",
        ranges="<results>/tables/ranges.csv",
        repetition="<results>/tables/repetition.csv",
        steps="<results>/tables/steps.csv",
        ranks=TABLES.rank_tables(),
        of_cells=TABLES.collective_tables() + TABLES.memory_tables(),
        sidecars=TABLES.timing_sidecars(),
        figures=PAGES.figure_files(),
        columns=TABLES.selection.makeable(["<results>/tables/columns.csv"]),
    output:
        report(
            "<results>/report.html",
            category="Report",
            caption="../report/page.rst",
            labels={"page": "what the zoo's cells do, and what holds them back"},
        ),
    log:
        "<logs>/report.log",
    group:
        "report"
    resources:
        **light(),
    params:
        models=SELECTED,
        phases=config["phases"],
        tools=RUN.tools,
        trials=PAGES.trials_and_digest(),
        lines=lambda wildcards: PAGES.line_tables(),
        lacking=[*configuration.unusable_cells(config), *LACKING],
        perfetto=PAGES.describe_perfetto(),
        traces=lambda wildcards: PAGES.written_traces(),
    script:
        "../scripts/write_report.py"


rule report:
    """Make the report, and with `export` all tables in other formats."""
    input:
        "<results>/report.html",
        expand("<results>/tables.{format}", format=config["export"]),
