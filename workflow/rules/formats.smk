# Needs: tables as CSV. Makes: the same tables as Parquet, Arrow or JSON, with units and meanings of columns inside.
from profzoo.io import table_formats

run_checked(table_formats.check_formats, config["export"])


rule convert_tables:
    """Write all tables as Parquet, Arrow or JSON, in a folder."""
    input:
        code("workflow/scripts/convert_tables.py"),
        tables=lambda wildcards: PAGES.all_tables(rules.write_report.input),
    output:
        folder=directory("<results>/tables.{format}"),
    log:
        "<logs>/tables.{format}.log",
    wildcard_constraints:
        format=patterns.match_any(table_formats.FORMATS),
    group:
        "report"
    resources:
        **light(),
    params:
        # Names in the new folder are those below this one.
        results=lambda wildcards: RESULTS,
    script:
        "../scripts/convert_tables.py"
