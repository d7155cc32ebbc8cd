# Needs: what is selected. Makes: the files that rules take, and those that names on the command line stand for.


def code(*paths):
    """What scripts or modules are made of, as inputs: Snakemake itself does not look at what they import."""
    root = import_graph.PROJECT
    relative = (str(Path(root, path).relative_to(root)) for path in paths)
    return inputs(import_graph.files_of(*relative))


def inputs(files):
    """Files of the workflow as inputs: relative, so that a checkout can be moved."""
    paths = map(os.path.relpath, files)
    # The prefix of a module is for what it makes.
    return list(paths) if MAIN else list(map(local, paths))


def cells(pattern, *needed):
    """The pattern for every selected cell that there is, of those of which these tools' parts are there."""
    found = [cell for cell in CELLS if THERE[cell] >= {tools.BASELINE, *needed}]
    return whole(path for model, phase in found for path in collect(pattern, model=model, phase=phase))


def whole(paths):
    """Those of the files that can be made, as far as is known."""
    return [path for path in paths if path.replace("<results>", RESULTS) not in LOST]


def made_of(*names):
    """Whether the tables across the zoo of these names can be made."""
    return len(whole(f"<results>/tables/{name}.csv" for name in names)) == len(names)


def tools_of(wildcards):
    """The tools whose part of a cell is there, or will be."""
    return THERE.get((wildcards.model, wildcards.phase), TOOLS)


def joined_sets(wildcards):
    """The section sets whose counters go into the kernel table: the default one and the census, where ncu is chosen."""
    if "ncu" not in tools_of(wildcards):
        return []
    # Of what has no census of its own, but where its trace tells no launches.
    also = [ncu.CENSUS] if untold(wildcards) is not None else []
    names = dict.fromkeys([*ncu.launch_sets(config["ncu"]), *also])
    return [f"<results>/{wildcards.model}/{wildcards.phase}.ncu.{name}.csv" for name in names]


def tables_patterns():
    """The files of a cell that tables are made of, by name; a tool may have the baseline's in the place of its own."""
    return {key: pattern for key, (_, pattern) in patterns_of_tools().items()}


def patterns_of_tools():
    """The same, each with the tool that it is of."""
    patterns = {}
    for tool in (tools.BASELINE, *TOOLS):
        patterns |= {key: (tool, pattern) for key, pattern in tools.files()[tool].tabulated(config[tool]).items()}
    return patterns


def kept():
    """What makes up each tool's part of a cell, and the baseline, for tables."""
    timed = [tables_patterns()[key] for key in ("time", "time_sidecar")]
    return {tools.BASELINE: timed} | {tool: tools.files()[tool].kept(config[tool]) for tool in TOOLS}


def baselines():
    """The sidecars of the unprofiled runs of all selected cells."""
    return cells(f"<results>/{{model}}/{tables_patterns()['time_sidecar']}")


def tabulated():
    """The inputs of the tables, by tool, each with its sidecars in the same order."""
    patterns = patterns_of_tools()
    files = {key: cells(f"<results>/{{model}}/{pattern}", tool) for key, (tool, pattern) in patterns.items()}
    if {"ncu", "nsys"} <= set(TOOLS) and config["ncu"]["set"] in ncu.launch_sets(config["ncu"]):
        covered = f"<results>/{{model}}/{{phase}}.ncu.{config['ncu']['set']}.coverage.csv"
        files["coverage"] = cells(covered, "ncu", "nsys")
    return files | {"ranks": compared_ranks()}


def judged():
    """What verdicts go by besides times: ncu's advice, and counters held against peaks where the default set has any.

    A set that measures ranges has neither for kernels.
    """
    if "ncu" not in TOOLS or config["ncu"]["set"] not in ncu.launch_sets(config["ncu"]):
        return {}
    advice = {
        "details": cells("<results>/{model}/{phase}.ncu-details.csv", "ncu"),
        "launches": cells("<results>/{model}/{phase}.ncu.csv", "ncu"),
    }
    peaks = f"peaks/{config['gpu']}.csv"
    files = [f"{peaks}{end}" for end in ("", ".json")]
    known = config["collect"] or all(Path(RESULTS, file).exists() for file in files)
    known = known and made_of("roofline") and len(whole(f"<results>/{file}" for file in files)) == len(files)
    if config["ncu"]["set"] == ncu.CENSUS or "nsys" not in TOOLS or not known:
        return advice
    return advice | {"roofline": "<results>/tables/roofline.csv", "peaks": f"<results>/{peaks}"}


def judged_layers():
    """What verdicts on layers go by, where the tool is chosen that tells them apart: kernels by owner, and the trees."""
    if "torch" not in TOOLS or "nsys" not in TOOLS:
        return {}
    files = {"owned": "layer-kernels", "trees": "layers"}
    pattern = "<results>/{{model}}/{{phase}}.{}.csv"
    return {name: cells(pattern.format(ending), "torch", "nsys") for name, ending in files.items()}


def judged_operators():
    """What verdicts on cells that ran on a CPU go by, where the tool is chosen that sees their operators."""
    return {"operators": cells("<results>/{model}/{phase}.operators.csv", "torch")} if "torch" in TOOLS else {}


def judged_replays():
    """The programs that expected gains are of, where the tool is chosen that traces them."""
    return {"programs": traced("program.npz")} if "nsys" in TOOLS else {}


def traced(ending):
    """What is made of the trace of each cell; of results that were copied, where that or the trace came along."""
    ends = (ending, "nsys.sqlite")
    return whole(
        f"<results>/{model}/{phase}.{ending}"
        for model, phase in CELLS
        if THERE[model, phase] >= {tools.BASELINE, "nsys"}
        and (config["collect"] or any(Path(RESULTS, model, f"{phase}.{end}").exists() for end in ends))
    )


def drawn():
    """The figures that the chosen tools and the comparison have data for."""
    have = {*TOOLS, *({"roofline"} & set(judged())), *comparison()}
    have |= {"layer_counters"} if have >= {"torch", "roofline"} else set()
    # Parts of the step, which a waterfall is made of, are nsys' to tell.
    have -= set() if "nsys" in TOOLS else {"compare_parts"}
    names = [name for name in figures.list_drawable(have) if made_of(*tables_of(name))]
    return whole(collect("<results>/figures/{name}.svg", name=names))


def tables_of(figure):
    """The tables across the zoo that a figure is drawn from."""
    one = figures.all_figures()[figure]
    return {one.dated_by, *one.inputs} - {"peaks"}


def drawn_of_comparison():
    """Those of the comparison."""
    return [path for path in drawn() if figures.all_figures()[Path(path).stem].compares]


def drawn_from(wildcards):
    """The tables that a figure is drawn from, by name, with that which says where and when they were measured."""
    figure = figures.all_figures()[wildcards.figure]
    names = (figure.dated_by, *figure.inputs)
    peaks = {"peaks": f"<results>/peaks/{config['gpu']}.csv"}
    return {name: peaks.get(name, f"<results>/tables/{name}.csv") for name in names}


def seen_by_others(wildcards):
    """What other tools than torch say of a cell's launches, by the names of a script's inputs."""
    home, found = f"<results>/{wildcards.model}/{wildcards.phase}", {}
    if "nsys" in tools_of(wildcards):
        found |= {"nsys": f"{home}.nsys.sqlite", "nsys_sidecar": f"{home}.nsys-rep.json"}
    if "ncu" in tools_of(wildcards) and config["ncu"]["set"] in ncu.launch_sets(config["ncu"]):
        found |= {"census": f"{home}{ncu_census.csv(counted_by_ncu(wildcards))}", "sets": joined_sets(wildcards)}
    return found | {name: path for name, path in judged().items() if name == "peaks"}


def compared_ranks():
    """The table of the processes of cells on several GPUs, where such are chosen and traced."""
    return ["<results>/tables/ranks.csv"] if ranked() and made_of("ranks") else []


def ranked():
    """The processes of cells on several GPUs, where such are chosen and traced."""
    traced = cells("<results>/{model}/{phase}.ranks.csv", "nsys") if "nsys" in TOOLS else []
    return [path for path in traced if Path(path).parent.name in SPREAD and Path(path).name.startswith("train.")]


def layered():
    """The tables of layers across the zoo, where the tool is chosen that tells them apart."""
    return (
        ["<results>/tables/layers.csv", "<results>/tables/owners.csv"] if "torch" in TOOLS and made_of("layers") else []
    )


def replayed():
    """The tables of replayed steps across the zoo, where the tool is chosen that traces them."""
    return ["<results>/tables/replay.csv", "<results>/tables/host.csv"] if "nsys" in TOOLS and made_of("replay") else []


def of_side(side, ending):
    """The file of each compared cell on one side that ends so."""
    home = side.folder or "<results>"
    return [f"{home}/{side.of(model)}/{phase}.{ending}" for model, phase in COMPARED]


def compared_times():
    """The steps of all compared cells, by the names of a script's inputs: of sides in turn, or of each apart."""
    if sides.runs_in_turn(SIDES):
        pattern = f"<results>/{{}}/{{}}.{sides.name_sides(SIDES)}.rounds.csv"
        return {"turns": [pattern.format(model, phase) for model, phase in COMPARED]}
    return {f"side_{place}": of_side(side, "time.csv") for place, side in enumerate(SIDES)}


def known_trials():
    """The table of trials where there is one, with what tells whether it is another: trials are never made for a page."""
    path = Path(f"{RESULTS}/tables/trials.csv")
    return [str(path), hashlib.sha256(path.read_bytes()).hexdigest()] if path.exists() else []


def promised():
    """What the page draws of cells by nsys: kernels, and a typical step."""
    if "nsys" not in TOOLS:
        return {}
    return {"kernels": "<results>/tables/kernels.csv", "timelines": traced("timeline.json")}


def handed_over():
    """What the page says and does of Perfetto: where that is, and what to type so that traces can be opened in it."""
    named = f" --config run={config['run']}" if config["run"] else ""
    return {"address": config["serve"]["perfetto"], "type": f"snakemake serve{named}"}


def drawn_of_cells():
    """What the page draws of cells by their counters and owners: rooflines, and trees of modules."""
    trees = {"layers": layered()[0]} if layered() else {}
    return trees | {name: path for name, path in judged().items() if name in ("roofline", "peaks")}


def comparison():
    """The tables of the comparison by name, where there is one: its verdicts, and where the differences lie."""
    names = ["compare", *(["compare_parts"] if {"nsys", "torch"} & set(TOOLS) else [])] if COMPARED else []
    return {name: f"<results>/tables/{name}.csv" for name in names if made_of("compare", name)}


def told_of_cells():
    """What the page says of cells by verdicts, where these can be made."""
    return {"verdicts": "<results>/tables/verdicts.csv"} if made_of("verdicts") else {}


def expected_gains():
    """What the advice of verdicts is expected to gain, where there is a trace to judge by, or was elsewhere."""
    return "<results>/tables/trials.expected.json" if "nsys" in TOOLS or config["trials"]["verdicts"] else []


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
    patterns = [(tool, pattern) for tool in TOOLS for pattern in tools.files()[tool].exported(config[tool])]
    patterns.insert(0, patterns_of_tools()[tools.BASELINE])
    found = [path for tool, pattern in patterns for path in cells(f"<results>/{{model}}/{pattern}", tool)]
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
                yield file.storage_object.query if stored else str(file)
        yield from map(str, planning.hidden(job))
        if "made" in job.params.keys():
            yield str(transaction.private_home(Path(job.output.sidecar)))


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


def compared_here():
    """The compared cells whose steps are there on all sides, and what the chosen tools saw of these."""
    paths = [*compared_times().values(), *(of_side(side, "nsys.csv") for side in SIDES if "nsys" in TOOLS)]
    rows = zip(COMPARED, *paths, strict=True)
    return [cell for cell, *files in rows if all(Path(path.replace("<results>", RESULTS)).exists() for path in files)]


def table(name):
    """A table across the zoo, which Snakemake's own report carries."""
    labels = {"table": name, "a row": ROWS[name]}
    return report(f"<results>/tables/{name}.csv", category="Tables", caption="../report/table.rst", labels=labels)


# All that is selected is made where anything is collected; elsewhere it is there or not.
LOST = missing_parts.read_missing(os.environ.get(completeness.WITHOUT))
THERE, LACKING = {cell: frozenset((tools.BASELINE, *TOOLS)) for cell in CELLS}, []
if not config["collect"]:
    found, LACKING = completeness.available_tools(
        CELLS, kept(), Path(RESULTS), Path(LOGS), config, os.environ.get(completeness.WITHOUT)
    )
    # A run that makes the report of what another left says what failed by itself.
    for line in (
        missing_cells.list_missing(LACKING) if workflow.is_main_process and completeness.WITHOUT not in os.environ else []
    ):
        print(f"profzoo: warning: {line}", file=sys.stderr)
    # Where there is nothing at all, Snakemake names what it takes.
    if any(tools.BASELINE in one for one in found.values()):
        THERE = found
        TOOLS = [tool for tool in TOOLS if any(tool in one for one in THERE.values())]
    COMPARED = compared_here() or COMPARED
LACKING = [*LACKING, *missing_parts.missing_rows(LOST)]

# Results that are taken as they are may be of other machines.
if MAIN and workflow.is_main_process and config["collect"]:
    for line in version_changes.version_messages(RESULTS, SELECTED, [tools.BASELINE, *TOOLS], workflow.local_exec, sys.argv[1:]):
        print(f"profzoo: {secret_values.mask_secrets(line)}", file=sys.stderr)
