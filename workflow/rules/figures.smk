# Needs: tables. Makes: figures, and the report that shows them.


rule draw_step_time:
    """Draw the unprofiled time of a step and the throughput."""
    input:
        source("lib/plots.py"),
        cells="<results>/tables/cells.csv",
    output:
        report(
            "<results>/figures/step_time.svg",
            category="Figures",
            caption="../report/step_time.rst",
            labels={"figure": "step time"},
        ),
        "<results>/figures/step_time.png",
    log:
        "<logs>/figures/step_time.log",
    script:
        "../scripts/figure_step_time.py"


rule draw_ranges:
    """Draw where the step goes, by its parts."""
    input:
        source("lib/plots.py"),
        source("lib/text.py"),
        cells="<results>/tables/cells.csv",
        ranges="<results>/tables/ranges.csv",
    output:
        report(
            "<results>/figures/ranges.svg",
            category="Figures",
            caption="../report/ranges.rst",
            labels={"figure": "parts of the step"},
        ),
        "<results>/figures/ranges.png",
    log:
        "<logs>/figures/ranges.log",
    script:
        "../scripts/figure_ranges.py"


rule draw_top_kernels:
    """Draw the kernels that take most of the time."""
    input:
        source("lib/plots.py"),
        source("figure_ranges.py"),
        cells="<results>/tables/cells.csv",
        activity="<results>/tables/activity.csv",
    output:
        report(
            "<results>/figures/top_kernels.svg",
            category="Figures",
            caption="../report/top_kernels.rst",
            labels={"figure": "top kernels"},
        ),
        "<results>/figures/top_kernels.png",
    log:
        "<logs>/figures/top_kernels.log",
    params:
        top=config["figures"]["top"],
    script:
        "../scripts/figure_top_kernels.py"


rule draw_overhead:
    """Draw how much each profiler slows a step down."""
    input:
        source("lib/plots.py"),
        cells="<results>/tables/cells.csv",
        agreement="<results>/tables/agreement.csv",
    output:
        report(
            "<results>/figures/overhead.svg",
            category="Figures",
            caption="../report/overhead.rst",
            labels={"figure": "profiler overhead"},
        ),
        "<results>/figures/overhead.png",
    log:
        "<logs>/figures/overhead.log",
    script:
        "../scripts/figure_overhead.py"


rule figures:
    """Draw every figure that the chosen tools have data for."""
    input:
        drawn(),


rule write_report:
    """Write the report: one HTML page that opens offline."""
    input:
        source("../report/report.html.j2"),
        source("lib/text.py"),
        cells="<results>/tables/cells.csv",
        agreement="<results>/tables/agreement.csv",
        activity="<results>/tables/activity.csv",
        figures=drawn(),
    output:
        "<results>/report.html",
    log:
        "<logs>/report.log",
    params:
        models=SELECTED,
        phases=config["phases"],
        tools=TOOLS,
    script:
        "../scripts/write_report.py"


rule report:
    """Make the report."""
    input:
        "<results>/report.html",
