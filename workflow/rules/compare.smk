# Needs: the sides of a comparison, `baseline` and `candidate`. Makes: which is faster, by how much, and whether it is so.


if config["collect"] and sides.runs_in_turn(SIDES):

    rule time_in_turn:
        """Time a cell without a profiler on all sides of a comparison, in processes that take turns."""
        input:
            sources,
            code("profzoo/harness/rounds.py"),
            weights=weights_of_sides,
        output:
            steps=f"<results>/{{model}}/{{phase}}.{sides.word(SIDES)}.rounds.csv",
            sidecar=f"<results>/{{model}}/{{phase}}.{sides.word(SIDES)}.rounds.csv.json",
        log:
            f"<logs>/{{model}}/{{phase}}.{sides.word(SIDES)}.rounds.log",
        retries: 0
        threads: cores()
        resources:
            **on_gpus(),
        params:
            job=in_turn,
            more=loaded_in_turn,
            made=made,
        shell:
            COLLECT


rule tabulate_comparison:
    """Hold every cell's candidates against the baseline: ratio with its interval, verdict, what else differs."""
    input:
        code("workflow/scripts/tabulate_comparison.py"),
        **compared_times(),
    output:
        csv=table("compare"),
    log:
        "<logs>/tables/compare.log",
    resources:
        **light(),
    params:
        sides=[side.name for side in SIDES],
        margin=config["margin"],
    script:
        "../scripts/tabulate_comparison.py"


rule tabulate_parts:
    """Put every difference down to parts of the step, ranges, classes of kernels, and kernels."""
    input:
        code("workflow/scripts/tabulate_parts.py"),
        **{f"kernels_{place}": of_side(side, "nsys.csv") for place, side in enumerate(SIDES)},
        **{f"steps_{place}": of_side(side, "nsys-steps.csv") for place, side in enumerate(SIDES)},
        compared="<results>/tables/compare.csv",
    output:
        csv=table("compare_parts"),
    log:
        "<logs>/tables/compare_parts.log",
    resources:
        **light(),
    params:
        sides=[side.name for side in SIDES],
    script:
        "../scripts/tabulate_parts.py"


rule compare:
    """Say which of two sides is faster: --config baseline=plain candidate=bf16; a variant or a folder of results each."""
    input:
        csv="<results>/tables/compare.csv",
        parts=of_parts(),
    log:
        "<logs>/compare.log",
    localrule: True
    params:
        fail=["--fail-on", config["fail_on"]] if config["fail_on"] else [],
        parts=lambda wildcards, input: ["--parts", input.parts] if input.parts else [],
    shell:
        "python -m profzoo.compare.told {input.csv:q} {params.parts:q} {params.fail:q} 2>&1 | tee {log:q}"
