"""Writes docs/zoo.md from what the models' files declare: groups, parameters, batches and shapes, sources."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.harness import registry

INTRODUCTION = """# The zoo

Generated from the models' files by `make docs`; do not edit. Weights are random and data is synthetic: nothing is ever
downloaded. `models=` takes names and groups: `--config models=vgg16,segmentation,lstm@bf16`.

Batch × shape are those of training | inference. `trimmed` is the default and fits a GPU of 8 GB; `reference` has the
batches and sizes of AI Benchmark 0.1.2, but for what the files say. Whatever is named there is a setting of the model:
`settings: {unet: {size: 128, batch: 4}}`.
"""


def page(models: Mapping[str, registry.Model]) -> str:
    """The page, in Markdown: a table of the models, then of the groups."""
    lines = [INTRODUCTION, "| model | parameters | trimmed | reference | source |", "|---|---|---|---|---|"]
    for name, model in models.items():
        workloads = (_workload(model.workloads[workload]) for workload in ("trimmed", "reference"))
        lines.append(f"| `{name}` | {model.parameters:,} | {' | '.join(workloads)} | {model.source} |")
    groups: dict[str, list[str]] = {}
    for name, model in models.items():
        for group in model.groups:
            groups.setdefault(group, []).append(f"`{name}`")
    lines += ["", "| group | models |", "|---|---|"]
    lines += [f"| `{group}` | {', '.join(names)} |" for group, names in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def _workload(phases: Mapping[str, Mapping[str, Any]]) -> str:
    shown = dict.fromkeys(_shape(phases[phase]) for phase in ("train", "inference"))
    return " \\| ".join(shown)


def _shape(declared: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in declared.items() if key != "batch"}
    return f"{declared['batch']} × " + ", ".join(f"{key} {value}" for key, value in rest.items())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(registry.zoo()), encoding="utf-8")
