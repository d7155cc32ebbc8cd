# Needs: tables. Makes: figures, and the report that shows them.


rule draw_step_time:
    """Draw the unprofiled time of a step and the throughput."""
    input:
        code("figure_step_time.py"),
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
        code("figure_ranges.py"),
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
        code("figure_top_kernels.py"),
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
        code("figure_overhead.py"),
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


rule draw_classes:
    """Draw what kinds of kernels take the GPU's time."""
    input:
        code("figure_classes.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/kernels.csv",
    output:
        report(
            "<results>/figures/classes.svg",
            category="Figures",
            caption="../report/classes.rst",
            labels={"figure": "kernel classes"},
        ),
        "<results>/figures/classes.png",
    log:
        "<logs>/figures/classes.log",
    script:
        "../scripts/figure_classes.py"


rule draw_steps:
    """Draw where an unprofiled step goes, idle time by cause."""
    input:
        code("figure_steps.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/steps.csv",
    output:
        report(
            "<results>/figures/steps.svg",
            category="Figures",
            caption="../report/steps.rst",
            labels={"figure": "where the step goes"},
        ),
        "<results>/figures/steps.png",
    log:
        "<logs>/figures/steps.log",
    script:
        "../scripts/figure_steps.py"


rule draw_launches:
    """Draw launches against the time that the GPU waits for them."""
    input:
        code("figure_launches.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/steps.csv",
    output:
        report(
            "<results>/figures/launches.svg",
            category="Figures",
            caption="../report/launches.rst",
            labels={"figure": "launches"},
        ),
        "<results>/figures/launches.png",
    log:
        "<logs>/figures/launches.log",
    script:
        "../scripts/figure_launches.py"


rule draw_similarity:
    """Draw which cells are alike by their kernels."""
    input:
        code("figure_similarity.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/kernels.csv",
    output:
        report(
            "<results>/figures/similarity.svg",
            category="Figures",
            caption="../report/similarity.rst",
            labels={"figure": "similarity"},
        ),
        "<results>/figures/similarity.png",
    log:
        "<logs>/figures/similarity.log",
    script:
        "../scripts/figure_similarity.py"


rule draw_roofline:
    """Draw the roofline of the zoo."""
    input:
        code("figure_roofline.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/roofline.csv",
        peaks=f"<results>/peaks/{config['gpu']}.csv",
    output:
        report(
            "<results>/figures/roofline.svg",
            category="Figures",
            caption="../report/roofline.rst",
            labels={"figure": "roofline"},
        ),
        "<results>/figures/roofline.png",
    log:
        "<logs>/figures/roofline.log",
    script:
        "../scripts/figure_roofline.py"


rule draw_speed_of_light:
    """Draw how near cells come to the limits of the GPU."""
    input:
        code("figure_speed_of_light.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/kernels.csv",
    output:
        report(
            "<results>/figures/speed_of_light.svg",
            category="Figures",
            caption="../report/speed_of_light.rst",
            labels={"figure": "speed of light"},
        ),
        "<results>/figures/speed_of_light.png",
    log:
        "<logs>/figures/speed_of_light.log",
    script:
        "../scripts/figure_speed_of_light.py"


rule draw_occupancy:
    """Draw achieved against possible occupancy."""
    input:
        code("figure_occupancy.py"),
        cells="<results>/tables/cells.csv",
        table="<results>/tables/kernels.csv",
    output:
        report(
            "<results>/figures/occupancy.svg",
            category="Figures",
            caption="../report/occupancy.rst",
            labels={"figure": "occupancy"},
        ),
        "<results>/figures/occupancy.png",
    log:
        "<logs>/figures/occupancy.log",
    script:
        "../scripts/figure_occupancy.py"


rule figures:
    """Draw every figure that the chosen tools have data for."""
    input:
        drawn(),


rule write_report:
    """Write the report: one HTML page that opens offline."""
    input:
        code("write_report.py"),
        source("../report/report.html.j2"),
        captions(),
        cells="<results>/tables/cells.csv",
        agreement="<results>/tables/agreement.csv",
        activity="<results>/tables/activity.csv",
        steps="<results>/tables/steps.csv",
        verdicts="<results>/tables/verdicts.csv",
        ranks=compared_ranks(),
        sidecars=cells("<results>/{model}/{phase}.time.csv.json"),
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
