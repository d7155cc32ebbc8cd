# Needs: the configuration. Makes: its checked form, the wildcard constraints, and the functions that name targets.
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profzoo.cell import registry
from profzoo.cell import settings
from profzoo.cell.spread import processes
from profzoo.config import configuration, targets
from profzoo.cell import data_files
from profzoo import figures, imports, tools
from profzoo.tools.ncu import command as ncu
from profzoo.tools.nsys import command as nsys
from profzoo.machine import paths
from profzoo.errors import ConfigError


def checked(function, *arguments):
    """The function's result; what is wrong with the configuration ends the run in one line."""
    try:
        return function(*arguments)
    except ConfigError as error:
        raise WorkflowError(str(error)) from None


# Jobs import models/ and profzoo/ wherever they run, by the interpreter that runs this.
paths.make_importable(str(ROOT))
paths.leave_home_alone()
checked(paths.use_own_python)

if shutil.which("sbatch"):
    # What the Slurm plugin asks for its jobs' states; profiles/slurm says why.
    paths.put_first(str(ROOT / "profiles" / "slurm" / "bin"))

# Not in place: a module's is part of the configuration of the workflow that uses it.
config = checked(configuration.normalise, config)
MODELS = checked(configuration.models, config)
UNUSABLE = checked(configuration.unusable, config)
CELLS = checked(configuration.cells, config)
SELECTED = list(dict.fromkeys(model for model, _ in CELLS))
RESULTS = workflow.pathvars.get("results")
TOOLS = [tool for tool in config["tool"] if tool != tools.BASELINE]

if MAIN:
    # Snakemake reads this before it knows its targets, so they are taken from the command line.
    checked(targets.check_targets, sys.argv[1:], RESULTS, config)
# Every cell is resolved once here, so that what is wrong with any of them is said before a job runs.
for model, phase in CELLS:
    for tool in (tools.BASELINE, *TOOLS):
        checked(data_files.root, checked(settings.resolve, model, phase, tool, config))
if workflow.is_main_process:
    for line in configuration.left_out(config):
        print(f"profzoo: warning: {line}", file=sys.stderr)


def any_of(names):
    """A regular expression that matches exactly these names."""
    return "|".join(map(re.escape, names))


# Cells of several GPUs, which nsys traces into a report for each.
SPREAD = checked(configuration.spread, config)
SPREAD_SELECTED = [model for model in SELECTED if model in SPREAD and (model, "train") in CELLS]


wildcard_constraints:
    # Also those whose files cannot be used, so that what was made of them is known.
    model=f"({any_of([*MODELS, *UNUSABLE])})(@({any_of(config['variants'])}))?",
    phase="train|inference",
    tool=any_of(tools.names()),
    set=any_of(config["ncu"]["sets"]),
    report=any_of(nsys.REPORTS),
    gpu=r"[\w-]+",


def described(tool, cell, **more):
    """All that a collecting job goes by, as one JSON text with sorted keys."""
    job = {"tool": tool, "cell": cell, "environment": config["environment"], **checked(data_files.summary, cell)}
    return json.dumps(job | more, sort_keys=True)


def job_text(tool, phase=None, **more):
    """A params function: that text of the cell under a tool."""
    return lambda wildcards: described(tool, resolved(wildcards, tool, phase), **more)


# What runs all collecting jobs: it builds the tool's command line of the job, and leaves the sidecar.
COLLECT = "python -m profzoo.collect --job {params.job:q} --log {log:q} {params.more:q} {params.made:q}"


def made(wildcards, output):
    """The words that name what a collecting job makes."""
    return [f"{name}={path}" for name, path in output.items()]


def loaded(wildcards, input):
    """The words that name what a collecting job starts with: weights, and a plan, where there are such."""
    given = {"--load": input.get("weights"), "--plan": input.get("plan")}
    return [word for option, path in given.items() if path for word in (option, str(path))]


def trained(wildcards):
    """The settings of the training whose weights inference loads: on one GPU, and no longer than it has to be."""
    one = {"gpus": 1, "nodes": 1}
    alone = {
        part: {name: {key: changes[key] for key in changes if key not in one} for name, changes in config[part].items()}
        for part in ("settings", "variants")
    }
    shortest = config | alone | one | {"time": config["time"] | {"window": 1}}
    return checked(settings.resolve, wildcards.model, "train", "time", shortest)


def of_several_gpus():
    """The wildcard constraints of cells that take several GPUs."""
    return {"model": any_of(SPREAD) or "no_cell", "phase": "train"}


def ncu_settings(wildcards):
    """The configuration's `ncu` for one section set of a cell."""
    return ncu.for_processes(config["ncu"], wildcards.set, processes(resolved(wildcards, "ncu", None)))


def resolved(wildcards, tool, phase):
    """The settings of the cell; the phase comes from the wildcards unless given."""
    return checked(settings.resolve, wildcards.model, phase or wildcards.phase, tool, config)


def sources(wildcards):
    """The files whose change means that a cell has to be collected again."""
    name, _ = settings.split_variant(wildcards.model)
    model = checked(registry.find, name, config["settings"].get(name, {}).get("module"))
    return inputs(checked(registry.sources, model))


def weights(wildcards):
    """What inference loads: the weights that a training left, where the model has one."""
    inference = wildcards.get("phase", "inference") == "inference"
    trains = inference and "train" in checked(settings.phases, wildcards.model, config)
    return f"<results>/{wildcards.model}/weights.pt" if trains else []


def census(wildcards):
    """The set that takes every launch, from which a set that takes one of each configuration has its counts."""
    counted = profiled(wildcards) in ("all", "ranges") or wildcards.set == ncu.CENSUS
    return [] if counted else f"<results>/{wildcards.model}/{wildcards.phase}.ncu.{ncu.CENSUS}.csv"


def profiled(wildcards):
    """What a section set profiles: `distinct` launches, `all`, the first N, or `ranges`."""
    return "ranges" if ncu.ranged(config["ncu"], wildcards.set) else ncu.launches(config["ncu"], wildcards.set)


def plan(wildcards):
    """The plan of a section set that has one."""
    made = f"<results>/{wildcards.model}/{wildcards.phase}.{wildcards.set}.plan.json"
    return made if ncu.planned(config["ncu"], wildcards.set) else []


def settled(wildcards):
    """What a section set that has a plan is collected by."""
    written = f"<results>/{wildcards.model}/{wildcards.phase}.{wildcards.set}.job.json"
    return written if ncu.planned(config["ncu"], wildcards.set) else []


def ncu_job(wildcards):
    """All that a section set is collected by, as one JSON text."""
    options = checked(ncu.options, ncu_settings(wildcards), wildcards.set)
    cell = resolved(wildcards, "ncu", None)
    return described("ncu", cell, set=wildcards.set, options=options, planned=planned_options(wildcards))


def planned_options(wildcards):
    """What of the configuration a plan goes by; nothing for a section set that has none."""
    if not ncu.planned(config["ncu"], wildcards.set):
        return {}
    keys = ("kernel_name", "launches", "replay", "budget")
    given = ncu_settings(wildcards)
    # The words as well, so that another choice of launches by the same settings is collected again.
    words = checked(ncu.selection, given, wildcards.set)
    sets = {wildcards.set: config["ncu"]["sets"][wildcards.set]}
    return {**{key: given[key] for key in keys}, "sets": sets, "selection": words}


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


def tabulated():
    """The inputs of the tables, by tool, each with its sidecars in the same order."""
    patterns = {}
    for tool in (tools.BASELINE, *TOOLS):
        patterns |= tools.files()[tool].tabulated(config[tool])
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


def drawn():
    """The figures that the chosen tools have data for."""
    have = {*TOOLS, *({"roofline"} & set(judged()))}
    return collect("<results>/figures/{name}.svg", name=figures.drawable(have))


def drawn_from(wildcards):
    """The tables that a figure is drawn from, by name; that of the cells says where and when they were measured."""
    names = ("cells", *figures.known()[wildcards.figure].inputs)
    peaks = {"peaks": f"<results>/peaks/{config['gpu']}.csv"}
    return {name: peaks.get(name, f"<results>/tables/{name}.csv") for name in names}


def compared_ranks():
    """The table of the processes of cells on several GPUs, where such are chosen and traced."""
    return ["<results>/tables/ranks.csv"] if SPREAD_SELECTED and "nsys" in TOOLS else []


def exports():
    """What is exported for every selected cell under every chosen tool."""
    patterns = [pattern for tool in (tools.BASELINE, *TOOLS) for pattern in tools.files()[tool].exported(config[tool])]
    return compared_ranks() + [path for pattern in patterns for path in cells(f"<results>/{{model}}/{pattern}")]


def everything():
    """What `all` makes: that, and the report with all that it shows."""
    return [*exports(), "<results>/report.html"]


def making(jobs):
    """The files that these jobs make: outputs, logs, benchmarks, and what nsys leaves until that has its place."""
    for job in jobs:
        for file in (*job.output, *job.log, job.benchmark, *getattr(job.params, "aside", ())):
            if file:
                stored = getattr(file, "is_storage", False)
                yield os.path.relpath(file.storage_object.query if stored else file)
