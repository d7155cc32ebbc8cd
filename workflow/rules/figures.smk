# Needs: tables. Makes: figures, and the report that shows them.


rule draw_figure:
    """Draw a figure of the tables that its module declares."""
    input:
        lambda wildcards: code("workflow/scripts/draw_figure.py", figures.all_figures()[wildcards.figure].path),
        unpack(drawn_from),
    output:
        report(
            "<results>/figures/{figure}.svg",
            category="Figures",
            caption="../report/figure.rst",
            labels=lambda wildcards: {"figure": figures.all_figures()[wildcards.figure].title},
        ),
        "<results>/figures/{figure}.png",
    log:
        "<logs>/figures/{figure}.log",
    group:
        "report"
    resources:
        **light(),
    params:
        caption=lambda wildcards: figures.all_figures()[wildcards.figure].caption,
        options=lambda wildcards: {key: config["figures"][key] for key in figures.all_figures()[wildcards.figure].options},
    script:
        "../scripts/draw_figure.py"


rule figures:
    """Draw every figure that the chosen tools have data for."""
    input:
        drawn(),


rule write_report:
    """Write the report: one HTML page that opens offline."""
    input:
        code("workflow/scripts/write_report.py"),
        code(*(figures.all_figures()[Path(figure).stem].path for figure in drawn())),
        **comparison(),
        **promised(),
        **drawn_of_cells(),
        **told_of_cells(),
        cells="<results>/tables/cells.csv",
        agreement="<results>/tables/agreement.csv",
        activity="<results>/tables/activity.csv",
        ranges="<results>/tables/ranges.csv",
        steps="<results>/tables/steps.csv",
        ranks=compared_ranks(),
        sidecars=baselines(),
        figures=drawn(),
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
        tools=TOOLS,
        trials=known_trials(),
        lacking=[*configuration.unusable_cells(config), *LACKING],
        perfetto=handed_over(),
    script:
        "../scripts/write_report.py"


rule report:
    """Make the report."""
    input:
        "<results>/report.html",
