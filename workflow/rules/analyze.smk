# Needs: exported CSV of the selected cells under the chosen tools. Makes: tables across them.


rule tabulate:
    """Join what every tool saw of every selected cell into tables, per step."""
    input:
        source("lib/cell_tables.py"),
        **tabulated(),
    output:
        cells="<results>/tables/cells.csv",
        kernels="<results>/tables/kernels.csv",
        ranges="<results>/tables/ranges.csv",
        steps="<results>/tables/steps.csv",
        agreement="<results>/tables/agreement.csv",
    log:
        "<logs>/tables/tabulate.log",
    script:
        "../scripts/tabulate.py"
