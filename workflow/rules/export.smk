# Needs: reports. Makes: tidy CSV with one header row and base units. A CPU is enough; ncu and nsys read their reports, or
# NVIDIA's package ncu-report those of ncu.


rule print_ncu:
    """Print a report's raw page, by mangled and by demangled kernel names."""
    input:
        "<results>/{model}/{phase}.{set}.ncu-rep",
    output:
        temp(directory("<results>/{model}/{phase}.{set}.ncu-pages")),
    log:
        "<logs>/{model}/{phase}.{set}.print.log",
    wildcard_constraints:
        **patterns.MEASURED,
    group:
        "ncu_{set}"
    envmodules:
        *modules("ncu"),
    resources:
        **light(),
    params:
        reports=lambda wildcards, input: quote_reports(input[0]),
        raw="--page raw --print-units base --print-kernel-base",
    shell:
        "python -m profzoo.io.file_checks --log {log:q} {input:q} && "
        "shopt -s nullglob && (rm -rf {output:q}.partial && mkdir -p {output:q}.partial"
        # All at once, as each takes most of its time to start.
        " && failed=0 && printing=() && for report in {params.reports}; do"
        ' page={output:q}.partial/"$(basename "$report" .ncu-rep)";'
        ' python -m profzoo.tools.ncu.report_pages "$report" {params.raw} mangled > "$page".mangled.csv &'
        ' printing+=($!); python -m profzoo.tools.ncu.report_pages "$report" {params.raw} demangled'
        ' --metrics gpu__time_duration.sum > "$page".demangled.csv & printing+=($!); done'
        ' && for one in "${{printing[@]}}"; do wait "$one" || failed=1; done && exit $failed) 2> {log:q}'
        f"{KEEP} --passing"


rule print_probe:
    """Print the raw page of a probe, from which the cost of a section set follows."""
    input:
        "<results>/peaks/{gpu}.{set}.ncu-rep",
    output:
        "<results>/peaks/{gpu}.{set}.probe.csv",
    log:
        "<logs>/peaks/{gpu}.{set}.print.log",
    # This job is in no group, because the plans of all cells wait for it and would become one group.
    envmodules:
        *modules("ncu"),
    resources:
        **light(),
    shell:
        "python -m profzoo.io.file_checks --log {log:q} {input:q} && python -m profzoo.tools.ncu.report_pages {input:q}"
        " --page raw --print-units base --print-kernel-base mangled > {output:q}.partial 2> {log:q}"
        f"{KEEP}"


rule export_ncu:
    """Export a section set's launches, with the number of launches of each configuration in the window."""
    input:
        code("workflow/scripts/export_ncu.py"),
        pages="<results>/{model}/{phase}.{set}.ncu-pages",
        sidecar="<results>/{model}/{phase}.{set}.ncu-rep.json",
        census=SETS.census,
    output:
        csv="<results>/{model}/{phase}.ncu.{set}.csv",
        sidecar="<results>/{model}/{phase}.ncu.{set}.csv.json",
    log:
        "<logs>/{model}/{phase}.ncu.{set}.export.log",
    group:
        "ncu_{set}"
    resources:
        **light(),
    params:
        launches=SETS.profiled_launches,
        metrics=SETS.metrics,
        each=False,
    script:
        "../scripts/export_ncu.py"


use rule print_ncu as print_ncu_sampled with:
    input:
        "<results>/{model}/{phase}.{set}.ncu-rep",
        "<results>/{model}/{phase}.{set}.ncu-more",
    wildcard_constraints:
        **patterns.match_sampled_sets(SETS.sampled_sets()),
    params:
        reports=lambda wildcards, input: quote_reports(input[0], input[1]),
        raw="--page raw --print-units base --print-kernel-base",


ruleorder: print_ncu_sampled > print_ncu


# The same for a cell on several GPUs, with one report per process.
use rule print_ncu as print_ncu_ranks with:
    input:
        "<results>/{model}/{phase}.{set}.ncu-ranks",
    output:
        temp(directory("<results>/{model}/{phase}.{set}.ncu-ranks-pages")),
    log:
        "<logs>/{model}/{phase}.{set}.ncu-ranks.print.log",
    params:
        reports=lambda wildcards, input: quote_reports(below=input[0]),
        raw="--page raw --print-units base --print-kernel-base",


use rule export_ncu as export_ncu_ranks with:
    input:
        code("workflow/scripts/export_ncu.py"),
        pages="<results>/{model}/{phase}.{set}.ncu-ranks-pages",
        sidecar="<results>/{model}/{phase}.{set}.ncu-ranks.json",
        census=SETS.census,
    output:
        csv="<results>/{model}/{phase}.ncu-ranks.{set}.csv",
        sidecar="<results>/{model}/{phase}.ncu-ranks.{set}.csv.json",
    log:
        "<logs>/{model}/{phase}.{set}.ncu-ranks.export.log",
    params:
        launches=SETS.profiled_launches,
        metrics=SETS.metrics,
        each=True,


rule select_ncu:
    """Export the default section set under the file name without a set."""
    input:
        csv=f"<results>/{{model}}/{{phase}}.ncu.{config['ncu']['set']}.csv",
        sidecar=f"<results>/{{model}}/{{phase}}.ncu.{config['ncu']['set']}.csv.json",
    output:
        csv="<results>/{model}/{phase}.ncu.csv",
        sidecar="<results>/{model}/{phase}.ncu.csv.json",
    log:
        "<logs>/{model}/{phase}.ncu.select.log",
    group:
        "export"
    resources:
        **light(),
    shell:
        "python -m profzoo.io.file_checks --log {log:q} {input:q}"
        " && (cp {input.csv:q} {output.csv:q}.partial && cp {input.sidecar:q} {output.sidecar:q}.partial) 2> {log:q}"
        f"{KEEP}"


rule print_ncu_details:
    """Print ncu's own details page of the default section set, with its rules' advice, verbatim."""
    input:
        f"<results>/{{model}}/{{phase}}.{config['ncu']['set']}.ncu-rep",
    output:
        ensure("<results>/{model}/{phase}.ncu-details.csv", non_empty=True),
    log:
        "<logs>/{model}/{phase}.ncu-details.log",
    wildcard_constraints:
        **patterns.MEASURED,
    group:
        "export"
    envmodules:
        *modules("ncu"),
    resources:
        **light(),
    shell:
        "python -m profzoo.io.file_checks --log {log:q} {input:q}"
        " && python -m profzoo.tools.ncu.report_pages {input:q} --page details > {output:q}.partial 2> {log:q}"
        f"{KEEP}"


use rule print_ncu_details as print_ncu_details_of_set with:
    input:
        "<results>/{model}/{phase}.{set}.ncu-rep",
    output:
        ensure("<results>/{model}/{phase}.ncu-details.{set}.csv", non_empty=True),
    log:
        "<logs>/{model}/{phase}.ncu-details.{set}.log",
    group:
        "ncu_{set}"


rule export_ncu_source:
    """Export stalls and counters by source line and machine instruction, of the most expensive kernels."""
    input:
        code("workflow/scripts/export_ncu_source.py"),
        report="<results>/{model}/{phase}.{set}.ncu-rep",
        launches="<results>/{model}/{phase}.ncu.{set}.csv",
    output:
        csv="<results>/{model}/{phase}.ncu-source.{set}.csv",
    log:
        "<logs>/{model}/{phase}.ncu-source.{set}.log",
    wildcard_constraints:
        **patterns.MEASURED,
    group:
        "ncu_{set}"
    envmodules:
        *modules("ncu"),
    resources:
        **light(),
    params:
        kernels=config["ncu"]["detailed_kernels"],
    script:
        "../scripts/export_ncu_source.py"


rule export_ncu_instances:
    """Export metrics with several values per launch, such as samples over time and opcodes."""
    input:
        code("workflow/scripts/export_ncu_instances.py"),
        report="<results>/{model}/{phase}.{set}.ncu-rep",
        launches="<results>/{model}/{phase}.ncu.{set}.csv",
    output:
        csv="<results>/{model}/{phase}.ncu-instances.{set}.csv",
    log:
        "<logs>/{model}/{phase}.ncu-instances.{set}.log",
    wildcard_constraints:
        **patterns.MEASURED,
    group:
        "ncu_{set}"
    envmodules:
        *modules("ncu"),
    resources:
        **light(),
    params:
        kernels=config["ncu"]["detailed_kernels"],
    script:
        "../scripts/export_ncu_instances.py"


rule export_nsys:
    """Export an nsys trace: one row per launch configuration and range, and the parts of the window's time."""
    input:
        code("workflow/scripts/export_nsys.py"),
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    output:
        csv="<results>/{model}/{phase}.nsys.csv",
        steps="<results>/{model}/{phase}.nsys-steps.csv",
        sidecar="<results>/{model}/{phase}.nsys.csv.json",
    log:
        "<logs>/{model}/{phase}.nsys.export.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_nsys.py"


rule export_streams:
    """Export what each stream of the GPU did per step, beside what else, and what copies moved."""
    input:
        code("workflow/scripts/export_streams.py"),
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    output:
        streams="<results>/{model}/{phase}.nsys-streams.csv",
        copies="<results>/{model}/{phase}.nsys-copies.csv",
    log:
        "<logs>/{model}/{phase}.nsys-streams.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_streams.py"


rule export_perfetto:
    """Write an nsys trace in the format that Perfetto opens: threads, calls, ranges, streams, counters and arrows."""
    input:
        code("workflow/scripts/export_perfetto.py"),
        sqlite=RUN.pattern("trace_database"),
    output:
        trace="<results>/{model}/{phase}.nsys.trace.json.gz",
    log:
        "<logs>/{model}/{phase}.nsys.trace.log",
    group:
        "export"
    resources:
        **light(minutes=30, mem_mb=8000),
    script:
        "../scripts/export_perfetto.py"


# This is a checkpoint, because only the trace shows whether ncu has to count the launches itself.
checkpoint export_launches:
    """Export the launches of a step in the order of the nsys trace, as the census for planning ncu."""
    input:
        code("workflow/scripts/export_launches.py"),
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    output:
        csv="<results>/{model}/{phase}.nsys-launches.csv",
        sidecar="<results>/{model}/{phase}.nsys-launches.csv.json",
    log:
        "<logs>/{model}/{phase}.nsys-launches.log",
    # This job is not in the group of plans, because plans depend on its result.
    group:
        "launches"
    resources:
        **light(),
    params:
        steps=SET_JOBS.window,
        otherwise=SETS.ncu["census"] == ncu_census.AUTO,
    script:
        "../scripts/export_launches.py"


rule export_ranks:
    """Export times per step of each process of a cell on several GPUs."""
    input:
        code("workflow/scripts/export_ranks.py"),
        ranks="<results>/{model}/{phase}.nsys-ranks",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    output:
        csv="<results>/{model}/{phase}.ranks.csv",
    log:
        "<logs>/{model}/{phase}.ranks.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_ranks.py"


rule export_nsys_over_time:
    """Export what nsys collected of the GPU over time: sampled metrics, their means per step, and memory in use."""
    input:
        code("workflow/scripts/export_nsys_over_time.py"),
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
        sidecar="<results>/{model}/{phase}.nsys-rep.json",
    output:
        metrics="<results>/{model}/{phase}.nsys-metrics.csv",
        steps="<results>/{model}/{phase}.nsys-metrics-steps.csv",
        memory="<results>/{model}/{phase}.nsys-memory.csv",
    log:
        "<logs>/{model}/{phase}.nsys-over-time.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_nsys_over_time.py"


rule export_collectives:
    """Export collective operations of a cell on several GPUs: their bandwidth, and which process comes late to them."""
    input:
        code("workflow/scripts/export_collectives.py"),
        ranks="<results>/{model}/{phase}.torch-ranks",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
        links=TABLES.link_probe,
    output:
        collectives="<results>/{model}/{phase}.torch-collectives.csv",
        skew="<results>/{model}/{phase}.torch-skew.csv",
    log:
        "<logs>/{model}/{phase}.torch-collectives.log",
    wildcard_constraints:
        **patterns.match_several_gpus(SPREAD),
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_collectives.py"


rule export_nsys_stats:
    """Export the configured reports of `nsys stats`, each to its own CSV."""
    input:
        code("workflow/scripts/export_nsys_stats.py"),
        sqlite="<results>/{model}/{phase}.nsys.sqlite",
    output:
        collect("<results>/{{model}}/{{phase}}.nsys/{report}.csv", report=config["nsys"]["reports"]),
    log:
        "<logs>/{model}/{phase}.nsys.stats.log",
    group:
        "export"
    envmodules:
        *modules("nsys"),
    resources:
        **light(),
    params:
        reports=config["nsys"]["reports"],
    script:
        "../scripts/export_nsys_stats.py"


rule export_torch:
    """Export torch.profiler's operators, and the launches in its trace: by range, and each with operator and module."""
    input:
        code("workflow/scripts/export_torch.py"),
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
    output:
        csv="<results>/{model}/{phase}.torch.csv",
        launches="<results>/{model}/{phase}.torch.launches.csv",
        modules="<results>/{model}/{phase}.torch.modules.csv",
        ranges="<results>/{model}/{phase}.torch.ranges.csv",
        dtypes="<results>/{model}/{phase}.torch.dtypes.csv",
    log:
        "<logs>/{model}/{phase}.torch.export.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_torch.py"


rule export_torch_streams:
    """Export what each stream of the GPU did per step by torch.profiler; nsys has the same with copies, in `all`."""
    input:
        code("workflow/scripts/export_torch_streams.py"),
        trace="<results>/{model}/{phase}.trace.json.gz",
    output:
        csv="<results>/{model}/{phase}.torch.streams.csv",
    log:
        "<logs>/{model}/{phase}.torch.streams.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_torch_streams.py"
