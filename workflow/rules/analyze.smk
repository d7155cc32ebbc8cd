# Needs: exported CSV of the selected cells under the chosen tools. Makes: tables across them.


rule cover_ncu:
    """Hold what ncu profiled against what nsys traced: configurations, share of GPU time, and what is missing."""
    input:
        source("lib/coverage.py"),
        nsys="<results>/{model}/{phase}.nsys.csv",
        ncu="<results>/{model}/{phase}.ncu.{set}.csv",
    output:
        csv="<results>/{model}/{phase}.ncu.{set}.coverage.csv",
    log:
        "<logs>/{model}/{phase}.ncu.{set}.coverage.log",
    script:
        "../scripts/cover_ncu.py"


rule tabulate:
    """Join what every tool saw of every selected cell into tables, per step."""
    input:
        source("lib/cell_tables.py"),
        source("lib/coverage.py"),
        **tabulated(),
    output:
        cells="<results>/tables/cells.csv",
        kernels="<results>/tables/kernels.csv",
        ranges="<results>/tables/ranges.csv",
        steps="<results>/tables/steps.csv",
        agreement="<results>/tables/agreement.csv",
        coverage="<results>/tables/coverage.csv",
    log:
        "<logs>/tables/tabulate.log",
    script:
        "../scripts/tabulate.py"
