"""Write docs/reference/sections.md: the shipped section sets, the questions they answer, and their costs."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from profzoo import extensions, schema
from profzoo.cell.tool_types import SectionSet
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs

INTRODUCTION = """# Section sets of Nsight Compute

`make docs` writes this page from the schema and from profzoo/tools/ncu/costs.yaml; do not edit it.
`{phase}.ncu.{set}.csv` holds the metrics that a set collects. To define a set of your own, add an entry to `ncu.sets`
with `sections`, `metrics` or a `set` of ncu's own.
The sets of an extension are in the table only if the page is written for it:
`PROFZOO_EXTENSIONS='["/path/of/lab"]' python -m profzoo.document.sets lab.md`.

The seconds are those of one launch in kernel replay on an H200. `at most` is the sum over the parts of a set, which
share passes. Profiling a cell takes the start-up of ncu (about 4 s), once or a few times, and these seconds for each
profiled launch. By default that is slightly more than one launch per launch configuration; mobilenetv2 has 186
configurations in training and 60 in inference.
"""
AFTERWARDS = """
## Before a run: the plan

Every set except `launch` is planned first, from a census: the list of all launches in the window. The census comes from
the set `launch` or from the trace of nsys (`ncu.census`). `{phase}.{set}.plan.json` and a line on the console say how
many launches will be profiled, what share of the GPU time they represent, in how many passes, and about how long it
takes. The report's sidecar holds the plan with ncu's options, and the wall time that profiling really took.

- `ncu.launches: sampled` (the default) profiles one launch of each configuration. It profiles more where one launch
  does not represent the others: where their times differ, or where other launches came before, because these change the
  content of the L2 cache. ncu can select a product of kernels and invocation numbers per run, so it may run several
  times; the plan says how often. If this saves less than a tenth of the time for all launches in one run, all launches
  are profiled, and the plan says so.
- `ncu.launches: distinct` profiles only one launch of each configuration, `all` profiles every launch.
- `ncu.error: 2%` is the largest relative error of totals per step, in nine of ten cases. It assumes that launches with
  similar times do similar work, because only times are known before profiling. If this is wrong, totals may be off by
  several times as much, and the export says so.
- `ncu.budget: 120s` profiles the configurations with the largest share of the GPU time, as many as fit into 120 s.
- `ncu.census: auto` (the default) takes the launches and their times from the trace of nsys
  (`{phase}.nsys-launches.csv`) if `tool` contains both tools and `ncu.set` is not `launch`. The set `launch` then does
  not run. All steps of the trace must launch the same kernels with the same grids, blocks and shared memory in the same
  order. If a step differs, as in a mixture of experts, the export names the first launch that differs. ncu then records
  the census of that cell itself, and the plan says why (`census_note`). If a run of ncu launches other kernels than the
  census, the export says so. `ncu` always takes a census by ncu; `nsys` takes the one of the trace, or none.
- `ncu.replay: auto` (the default) replays each launch, or repeats the whole process if that is clearly cheaper.

The estimated cost per launch comes from the sidecars of earlier reports under `results/` that were made on the same
GPU, of this set or else of others. Without such reports, the seconds of the table above are used. If your own set has
metrics or sections whose cost nobody measured, the set is probed once: ncu profiles eight launches of two kernels and
so finds its passes and seconds (`peaks/{gpu}.{set}.ncu-rep`).

## After a run: estimates

Each row of `{phase}.ncu.{set}.csv` is one profiled launch:

- `launch` is the position of the launch in the census (`{phase}.ncu.launch.csv` or `{phase}.nsys-launches.csv`; the
  sidecar names the file as `census`). It is found by the launch's order within its configuration.
- `stratum` is the group of similar launches to which the launch belongs.
- `multiplicity` is the number of launches that it represents. All multiplicities add up to the launches of the window.
- `time_spread` is the longest over the shortest time of the launches that it represents.
- `as_planned` is `False` if ncu's run launched other kernels than the census. The row is then taken to be the next
  launch of its configuration, and the export names the functions.

The sidecar has `totals`: for each additive metric, the total of the window and its 90 % confidence interval.
`totals_within` is half the width of this interval, relative to the total, for DRAM bytes, L2 bytes and operations;
compare it with `error` in the plan. `tables/kernels.csv` has such intervals for the mean launch of each row (`_low`,
`_high`), and `tables/roofline.csv` has them for cells, classes, ranges and launches. If an interval leaves a verdict
open, the verdict is undecided. `profzoo/tools/ncu/estimates.py` explains the method and names its sources. `python -m
tests.benchmarks.counted_truth MODEL/PHASE` compares the estimates with a count of every launch. A set with `launches:
all` has nothing to estimate, and no interval.

## After a run: coverage

`{phase}.ncu.{set}.coverage.csv` compares the launches that ncu profiled with the nsys trace of the same cell. It lists
the configurations that are missing, their share of the GPU time, and the reason. cuDNN and cuBLAS may choose other
kernels from one run to the next; the export then names these kernels. `deterministic: true` (or `model@deterministic`)
makes them choose the same kernels each time.

`uneven_time` in `tables/coverage.csv` is the share of the GPU time in configurations where one profiled launch
represents launches whose times differ by more than a factor of 1.5. `other_launches` is the share of the GPU time in
configurations of which other launches were profiled than planned.

## Ranges

A launch belongs to the part of the step that was open when the host made it. In NVTX, and so in reports of ncu and
nsys, the ranges are called `profzoo_step`, `profzoo_forward` and so on, in the domain `profzoo`. In traces of
torch.profiler they are called `profzoo:step` and so on. A program may open ranges of its own under any name, even
`step` or `backward`; no table confuses them with these.

Sets with `replay: app-range` measure whole NVTX ranges instead of launches, with caches and overlap as they are.
`ranges` has one row per part of a step, `step` has one row for the whole step. In this mode ncu refuses metrics of
single instructions. If such a set is `ncu.set`, tables of kernels have only the times of `launch`; there is no
roofline, coverage or advice.
"""


def write_sets_page(
    sets: Mapping[str, SectionSet], costs: ncu_costs.Costs, origins: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the page in Markdown.

    Args:
        sets: definitions of the section sets by name.
        costs: content of costs.yaml.
        origins: name of the extension by section set, for the sets of extensions; these need no description.

    Raises:
        ConfigError: a set has no description, or a description belongs to no set.
    """
    described = {**{name: f"a set of the extension `{origin}`" for name, origin in origins.items()}, **costs["answers"]}
    where = "profzoo/tools/ncu/costs.yaml"
    if missing := [name for name in sets if name not in described]:
        raise ConfigError(
            f"{where} has no description of the section set {missing[0]} under `answers`: add a line there that says "
            "which question the set answers"
        )
    if unknown := [name for name in described if name not in sets]:
        raise ConfigError(
            f"{where}: `answers` has {unknown[0]}, which is no section set: {suggest_nearest(unknown[0], sets)}"
        )
    lines = [INTRODUCTION, "| set | answers | passes | seconds per launch |", "|---|---|---|---|"]
    for name, chosen in sets.items():
        price = ncu_costs.estimate_cost(chosen, costs)
        limit = "" if price.basis == ncu_costs.MEASURED else "at most "
        cells = f"{limit}{price.passes} | {limit}{price.seconds:.3g}"
        if ncu_costs.lacks_cost(chosen, costs):
            cells = "probed before the first run | probed"
        if chosen.get("replay") in ncu.RANGE_REPLAY:
            cells = "whole process, once per pass | none"
        lines.append(f"| `{name}` | {described[name]} | {cells} |")
    return "\n".join(lines) + "\n" + AFTERWARDS


def main(path: Path) -> None:
    """Write the page of the shipped sets and of extensions' sets to `path`; exit with one line on an error."""
    known = schema.load_schema()["properties"][TOOL]["properties"]["sets"]["default"]
    origins = {name: extensions.extension_name(file.parent) for name, file in schema.extension_sets().items()}
    try:
        path.write_text(write_sets_page(known, ncu_costs.load_costs(), origins), encoding="utf-8")
    except ConfigError as error:
        sys.exit(f"profzoo: error: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
