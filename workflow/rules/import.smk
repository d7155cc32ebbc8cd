# Converts reports that were made without profzoo to the files that collect.smk makes, for use by the same later rules.
# Needs: files that the configuration names, which are only read. Makes: reports as in collect.smk, with their sidecars.


rule import_torch:
    """Convert a trace of torch.profiler that was made without profzoo."""
    input:
        code("workflow/scripts/import_torch.py"),
    output:
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
    log:
        "<logs>/{model}/{phase}.torch.import.log",
    wildcard_constraints:
        **IMPORTS.with_tool("torch"),
    resources:
        **light(minutes=30, mem_mb=8000),
    params:
        files=IMPORTS.files("torch"),
        digests=IMPORTS.digests("torch"),
        step=IMPORTS.step,
    script:
        "../scripts/import_torch.py"


rule import_nsys:
    """Convert a report of Nsight Systems that was made without profzoo."""
    input:
        code("workflow/scripts/import_nsys.py"),
    output:
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    log:
        "<logs>/{model}/{phase}.nsys.import.log",
    wildcard_constraints:
        **IMPORTS.with_tool("nsys"),
    envmodules:
        *modules("nsys"),
    resources:
        **light(minutes=30, mem_mb=8000),
    params:
        files=IMPORTS.files("nsys"),
        digests=IMPORTS.digests("nsys"),
        step=IMPORTS.step,
    script:
        "../scripts/import_nsys.py"


# Makes the same files as from a report, as far as a summary contains their data.
rule import_nsys_summary:
    """Convert a summary of kernels that `nsys stats` printed, if there is no report."""
    input:
        code("workflow/scripts/import_nsys_summary.py"),
    output:
        csv="<results>/{model}/{phase}.nsys.csv",
        steps="<results>/{model}/{phase}.nsys-steps.csv",
        told="<results>/{model}/{phase}.nsys.csv.json",
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    log:
        "<logs>/{model}/{phase}.nsys.import.log",
    wildcard_constraints:
        **IMPORTS.with_summary(),
    resources:
        **light(),
    params:
        files=IMPORTS.files("nsys"),
        digests=IMPORTS.digests("nsys"),
    script:
        "../scripts/import_nsys_summary.py"


ruleorder: import_nsys_summary > import_nsys
ruleorder: import_nsys_summary > export_nsys


rule import_nsys_of_torch:
    """Write the launches of an imported trace of torch.profiler in the form of nsys, if there is no report of nsys."""
    input:
        code("workflow/scripts/import_nsys_of_torch.py"),
        trace="<results>/{model}/{phase}.trace.json.gz",
        told="<results>/{model}/{phase}.trace.json.gz.json",
    output:
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    log:
        "<logs>/{model}/{phase}.nsys.import.log",
    wildcard_constraints:
        **IMPORTS.with_torch_alone(),
    resources:
        **light(minutes=30, mem_mb=8000),
    script:
        "../scripts/import_nsys_of_torch.py"


# nsys cannot start the program again.
use rule import_nsys_of_torch as derive_nsys_of_recorded with:
    log:
        "<logs>/{model}/{phase}.nsys.recorded.log",
    wildcard_constraints:
        **IMPORTS.recorded(),


ruleorder: derive_nsys_of_recorded > profile_nsys_ranks > profile_nsys


rule import_ncu:
    """Convert reports of Nsight Compute that were made without profzoo; kernels get their names in the cell's trace."""
    input:
        code("workflow/scripts/import_ncu.py"),
        traced=IMPORTS.trace,
    output:
        pages=directory("<results>/{model}/{phase}.{set}.ncu-pages"),
        details="<results>/{model}/{phase}.{set}.ncu-details.csv",
        sidecar="<results>/{model}/{phase}.{set}.ncu-rep.json",
    log:
        "<logs>/{model}/{phase}.{set}.ncu.import.log",
    wildcard_constraints:
        **IMPORTS.with_tool("ncu"),
    envmodules:
        *modules("ncu"),
    resources:
        **light(minutes=30, mem_mb=8000),
    params:
        files=IMPORTS.files("ncu"),
        digests=IMPORTS.digests("ncu"),
    script:
        "../scripts/import_ncu.py"


rule import_ncu_details:
    """Write an imported details page under the file name without a set."""
    input:
        f"<results>/{{model}}/{{phase}}.{config['ncu']['set']}.ncu-details.csv",
    output:
        "<results>/{model}/{phase}.ncu-details.csv",
    log:
        "<logs>/{model}/{phase}.ncu-details.import.log",
    wildcard_constraints:
        **IMPORTS.with_tool("ncu"),
    group:
        "export"
    resources:
        **light(),
    shell:
        "python -m profzoo.io.file_checks --log {log:q} {input:q} && cp {input:q} {output:q}.partial 2> {log:q}"
        f"{KEEP}"


use rule import_ncu_details as import_ncu_details_of_set with:
    input:
        "<results>/{model}/{phase}.{set}.ncu-details.csv",
    output:
        "<results>/{model}/{phase}.ncu-details.{set}.csv",
    log:
        "<logs>/{model}/{phase}.ncu-details.{set}.import.log",


rule import_time:
    """Make the table of steps of an imported cell from its reports."""
    input:
        code("workflow/scripts/import_time.py"),
        told=IMPORTS.sidecars,
    output:
        steps=RUN.pattern("time"),
        sidecar=RUN.pattern("time_sidecar"),
    log:
        "<logs>/{model}/{phase}.time.import.log",
    wildcard_constraints:
        model=IMPORTS.models(),
        phase=IMPORTED,
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/import_time.py"


rule import:
    """Import the named reports, and make their tables and the report page."""
    input:
        imported.imported_files(RUN, TABLES.exports()),
        expand("<results>/tables.{format}", format=config["export"]),
