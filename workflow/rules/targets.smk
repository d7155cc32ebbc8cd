# Needs: what is selected. Makes: the files that rules take, and those that names on the command line stand for.


def code(*paths):
    """What scripts or modules are made of, as inputs: Snakemake itself does not look at what they import."""
    root = imports.PROJECT
    relative = (str(Path(root, path).relative_to(root)) for path in paths)
    return inputs(imports.made_of(*relative))


def inputs(files):
    """Files of the workflow as inputs: relative, so that a checkout can be moved."""
    paths = map(os.path.relpath, files)
    # The prefix of a module is for what it makes.
    return list(paths) if MAIN else list(map(local, paths))


def cells(pattern):
    """The pattern for every selected cell."""
    models, phases = zip(*CELLS, strict=True)
    return collect(pattern, zip, model=models, phase=phases)


def joined_sets(wildcards):
    """The section sets whose counters go into the kernel table: the default one and the census, where ncu is chosen."""
    names = ncu.of_launches(config["ncu"]) if "ncu" in TOOLS else []
    return [f"<results>/{wildcards.model}/{wildcards.phase}.ncu.{name}.csv" for name in names]


def tables_patterns():
    """The files of a cell that tables are made of, by name; a tool may have the baseline's in the place of its own."""
    patterns = {}
    for tool in (tools.BASELINE, *TOOLS):
        patterns |= tools.files()[tool].tabulated(config[tool])
    return patterns


def baselines():
    """The sidecars of the unprofiled runs of all selected cells."""
    return cells(f"<results>/{{model}}/{tables_patterns()['time_sidecar']}")


def tabulated():
    """The inputs of the tables, by tool, each with its sidecars in the same order."""
    patterns = tables_patterns()
    files = {key: cells(f"<results>/{{model}}/{pattern}") for key, pattern in patterns.items()}
    if {"ncu", "nsys"} <= set(TOOLS) and config["ncu"]["set"] in ncu.of_launches(config["ncu"]):
        files["coverage"] = cells(f"<results>/{{model}}/{{phase}}.ncu.{config['ncu']['set']}.coverage.csv")
    return files | {"ranks": compared_ranks()}


def judged():
    """What verdicts go by besides times: ncu's advice, and counters held against peaks where the default set has any.

    A set that measures ranges has neither for kernels.
    """
    if "ncu" not in TOOLS or config["ncu"]["set"] not in ncu.of_launches(config["ncu"]):
        return {}
    advice = {
        "details": cells("<results>/{model}/{phase}.ncu-details.csv"),
        "launches": cells("<results>/{model}/{phase}.ncu.csv"),
    }
    if config["ncu"]["set"] == ncu.CENSUS or "nsys" not in TOOLS:
        return advice
    return advice | {"roofline": "<results>/tables/roofline.csv", "peaks": f"<results>/peaks/{config['gpu']}.csv"}


def judged_layers():
    """What verdicts on layers go by, where the tool is chosen that tells them apart: kernels by owner, and the trees."""
    if "torch" not in TOOLS or "nsys" not in TOOLS:
        return {}
    files = {"owned": "layer-kernels", "trees": "layers"}
    return {name: cells(f"<results>/{{model}}/{{phase}}.{ending}.csv") for name, ending in files.items()}


def drawn():
    """The figures that the chosen tools and the comparison have data for."""
    have = {*TOOLS, *({"roofline"} & set(judged())), *comparison()}
    have |= {"layer_counters"} if have >= {"torch", "roofline"} else set()
    # Parts of the step, which a waterfall is made of, are nsys' to tell.
    have -= set() if "nsys" in TOOLS else {"compare_parts"}
    return collect("<results>/figures/{name}.svg", name=figures.drawable(have))


def drawn_of_comparison():
    """Those of the comparison."""
    return [path for path in drawn() if figures.known()[Path(path).stem].compares]


def drawn_from(wildcards):
    """The tables that a figure is drawn from, by name, with that which says where and when they were measured."""
    figure = figures.known()[wildcards.figure]
    names = (figure.dated_by, *figure.inputs)
    peaks = {"peaks": f"<results>/peaks/{config['gpu']}.csv"}
    return {name: peaks.get(name, f"<results>/tables/{name}.csv") for name in names}


def seen_by_others():
    """What other tools than torch say of a cell's launches, by the names of a script's inputs."""
    home, found = "<results>/{model}/{phase}", {}
    if "nsys" in TOOLS:
        found |= {"nsys": f"{home}.nsys.sqlite", "nsys_sidecar": f"{home}.nsys-rep.json"}
    if "ncu" in TOOLS and config["ncu"]["set"] in ncu.of_launches(config["ncu"]):
        sets = [f"{home}.ncu.{name}.csv" for name in ncu.of_launches(config["ncu"])]
        found |= {"census": f"{home}{ncu_census.csv(config['ncu'])}", "sets": sets}
    return found | {name: path for name, path in judged().items() if name == "peaks"}


def compared_ranks():
    """The table of the processes of cells on several GPUs, where such are chosen and traced."""
    return ["<results>/tables/ranks.csv"] if SPREAD_SELECTED and "nsys" in TOOLS else []


def layered():
    """The tables of layers across the zoo, where the tool is chosen that tells them apart."""
    return ["<results>/tables/layers.csv", "<results>/tables/owners.csv"] if "torch" in TOOLS else []


def replayed():
    """The tables of replayed steps across the zoo, where the tool is chosen that traces them."""
    return ["<results>/tables/replay.csv", "<results>/tables/host.csv"] if "nsys" in TOOLS else []


def of_side(side, ending):
    """The file of each compared cell on one side that ends so."""
    home = side.folder or "<results>"
    return [f"{home}/{side.of(model)}/{phase}.{ending}" for model, phase in COMPARED]


def compared_times():
    """The steps of all compared cells, by the names of a script's inputs: of sides in turn, or of each apart."""
    if sides.runs_in_turn(SIDES):
        pattern = f"<results>/{{}}/{{}}.{sides.word(SIDES)}.rounds.csv"
        return {"turns": [pattern.format(model, phase) for model, phase in COMPARED]}
    return {f"side_{place}": of_side(side, "time.csv") for place, side in enumerate(SIDES)}


def comparison():
    """The tables of the comparison by name, where there is one: its verdicts, and where the differences lie."""
    names = ["compare", *(["compare_parts"] if {"nsys", "torch"} & set(TOOLS) else [])] if COMPARED else []
    return {name: f"<results>/tables/{name}.csv" for name in names}


def expected_gains():
    """What the advice of verdicts is expected to gain, where there is a trace to judge by."""
    return "<results>/tables/trials.expected.json" if "nsys" in TOOLS else []


def compared_parts():
    """What tools saw of each side of a comparison, by the names of a script's inputs."""
    endings = {"kernels": "nsys.csv", "steps": "nsys-steps.csv"} if "nsys" in TOOLS else {}
    found = {f"{what}_{at}": of_side(side, ending) for what, ending in endings.items() for at, side in enumerate(SIDES)}
    return found | (known_of_sides(layers="layers.csv") if "torch" in TOOLS else {})


def compared_energies():
    """The samples of NVML's counters on each side, by the names of a script's inputs, where that tool is chosen."""
    return known_of_sides(sampled="sample.csv") if "sample" in TOOLS else {}


def known_of_sides(**endings):
    """The files of each side that end so, by names and the sides' places; a folder of results may lack any of them."""
    return {
        f"{what}_{place}": [path for path in of_side(side, ending) if not side.folder or Path(path).exists()]
        for what, ending in endings.items()
        for place, side in enumerate(SIDES)
    }


def weights_of_sides(wildcards):
    """What inference loads on each side, in their order."""
    found = [weights_of(side.of(wildcards.model), wildcards.phase) for side in SIDES]
    return [path for path in found if path]


def exports():
    """The baseline, and what is exported for every selected cell under every chosen tool."""
    patterns = [pattern for tool in TOOLS for pattern in tools.files()[tool].exported(config[tool])]
    patterns.insert(0, tables_patterns()[tools.BASELINE])
    found = [path for pattern in patterns for path in cells(f"<results>/{{model}}/{pattern}")]
    return compared_ranks() + layered() + replayed() + found


def everything():
    """What `all` makes: that, and the report with all that it shows."""
    return [*exports(), "<results>/report.html"]


def making(jobs):
    """The files that these jobs make: outputs, logs, benchmarks, and where collecting ones keep theirs until the end."""
    for job in jobs:
        for file in (*job.output, *job.log, job.benchmark):
            if file:
                stored = getattr(file, "is_storage", False)
                yield os.path.relpath(file.storage_object.query if stored else file)
        if "made" in job.params.keys():
            yield os.path.relpath(transaction.home(Path(job.output.sidecar)))


# What a row of each table across the zoo is, for Snakemake's own report.
ROWS = {
    "cells": "a cell",
    "activity": "a cell, tool, range and kernel",
    "kernels": "a cell, launch configuration and range",
    "ranges": "a cell, tool and part of the step",
    "steps": "a cell and process",
    "agreement": "a cell",
    "coverage": "a cell and section set",
    "ranks": "a cell on several GPUs and process",
    "layers": "a cell, module and direction",
    "owners": "a cell",
    "replay": "a cell, process and change",
    "host": "a cell and process",
    "roofline": "a cell, class of kernels, or launch configuration",
    "compare": "a cell and candidate",
    "compare_parts": "a cell, candidate, and part of the step, range, class of kernels, layer, or kernel",
    "trials": "a cell and settings",
    "verdicts": "what holds a cell or one of its kernels back",
}


def table(name):
    """A table across the zoo, which Snakemake's own report carries."""
    labels = {"table": name, "a row": ROWS[name]}
    return report(f"<results>/tables/{name}.csv", category="Tables", caption="../report/table.rst", labels=labels)
