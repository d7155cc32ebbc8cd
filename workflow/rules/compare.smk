# Needs: the sides of a comparison, `baseline` and `candidate`. Makes: which is faster, by how much, and whether it is so.


# A model that bears a variant is a side itself.
COMPARED = [cell for cell in CELLS if "@" not in cell[0]] if SIDES else []


def of_side(side, ending):
    """The file of each compared cell on one side that ends so."""
    home = side.folder or "<results>"
    return [f"{home}/{side.of(model)}/{phase}.{ending}" for model, phase in COMPARED]


def times():
    """The steps of all compared cells, by the names of a script's inputs: of sides in turn, or of each apart."""
    if sides.runs_in_turn(SIDES):
        pattern = f"<results>/{{}}/{{}}.{sides.word(SIDES)}.rounds.csv"
        return {"turns": [pattern.format(model, phase) for model, phase in COMPARED]}
    return {f"side_{place}": of_side(side, "time.csv") for place, side in enumerate(SIDES)}


def of_parts():
    """Where the differences lie, where nsys is chosen."""
    return "<results>/tables/compare_parts.csv" if "nsys" in TOOLS else []


def weights_of_sides(wildcards):
    """What inference loads on each side, in their order."""
    found = [weights_of(side.of(wildcards.model), wildcards.phase) for side in SIDES]
    return [path for path in found if path]


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
        **times(),
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
