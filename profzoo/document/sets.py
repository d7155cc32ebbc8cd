"""Write docs/reference/sections.md: the shipped section sets, the questions they answer, and their costs."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from profzoo import extensions
from profzoo.cell import schema
from profzoo.cell.tool_types import SectionSet
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs

INTRODUCTION = """# Section sets of Nsight Compute

Here you find which section set answers your question, and what it costs.

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
[Sampling launches](../how/sampling.md) describes which launches a set profiles, and what a row of its table stands for.
[What counters say about kernels](../how/kernels.md#sections-of-nsight-compute) describes ncu's own sections.

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
            f"{where}: `answers` has {unknown[0]}, which is not a section set: {suggest_nearest(unknown[0], sets)}"
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
