"""Write docs/reference/zoo.md: the declarations of the models' files, and their networks' parameter counts."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from profzoo.cell import registry
from profzoo.json_types import GivenSettings

INTRODUCTION = """# The zoo

Here you find the models that come with profzoo, with their sizes and where they are from.

Generated from the models' files by `make docs`; do not edit. Weights are random and data is synthetic: nothing is ever
downloaded. `models=` takes names and groups: `--config models=vgg16,segmentation,lstm@bf16`.

Parameters are counted, of the network of the workload `trimmed`. Batch × shape are those of training | inference.
`trimmed` is the default and fits a GPU of 8 GB; `reference` has the batches and sizes of AI Benchmark 0.1.2, but for
what the files say. Whatever is named there is a setting of the model: `settings: {unet: {size: 128, batch: 4}}`.
"""
MISSING = "–"


def count_parameters(model: registry.Model) -> int:
    """Count the parameters of a model's network, built on torch's meta device without memory."""
    import torch

    from profzoo.harness import interface

    workload = model.workloads.get("trimmed") or next(iter(model.workloads.values()))
    declared = workload.get("train") or next(iter(workload.values()))
    with torch.device("meta"):
        network = interface.load_functions(model.module).build(SimpleNamespace(**{**model.shape, **declared}))
    return sum(parameter.numel() for parameter in network.parameters())


def write_zoo_page(models: Mapping[str, registry.Model], parameters: Mapping[str, int]) -> str:
    """The page, in Markdown: the models, where published counts differ, the groups.

    parameters: of the networks, by model; one that is not there could not be counted.
    """
    lines = [INTRODUCTION, "| model | parameters | trimmed | reference | source |", "|---|---|---|---|---|"]
    for name, model in models.items():
        shown = (
            _format_number(parameters.get(name)),
            *(_format_workload(model.workloads.get(workload, {})) for workload in ("trimmed", "reference")),
            model.source or MISSING,
        )
        lines.append(f"| `{name}` | {' | '.join(shown)} |")
    lines += ["", *_list_differences(models, parameters)]
    groups: dict[str, list[str]] = {}
    for name, model in models.items():
        for group in model.groups:
            groups.setdefault(group, []).append(f"`{name}`")
    lines += ["| group | models |", "|---|---|"]
    lines += [f"| `{group}` | {', '.join(names)} |" for group, names in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def _list_differences(models: Mapping[str, registry.Model], parameters: Mapping[str, int]) -> list[str]:
    """A table of the published counts that are not those of the networks; no lines where there is none."""
    rows = [
        f"| `{name}` | {_format_number(model.parameters)} | {model.difference or 'not said'} |"
        for name, model in models.items()
        if model.parameters is not None and parameters.get(name) not in (None, model.parameters)
    ]
    return ["| model | published | why the network has another count |", "|---|---|---|", *rows, ""] if rows else []


def _format_number(count: int | None) -> str:
    return MISSING if count is None else f"{count:,}"


def _format_workload(phases: Mapping[str, GivenSettings]) -> str:
    shown = dict.fromkeys(_format_shape(declared) for phase in registry.PHASES if (declared := phases.get(phase)))
    return " \\| ".join(shown) or MISSING


def _format_shape(declared: GivenSettings) -> str:
    rest = {key: value for key, value in declared.items() if key != "batch"}
    return " × ".join(
        filter(None, [str(declared["batch"]), ", ".join(f"{key} {value}" for key, value in rest.items())])
    )


def main(path: Path) -> None:
    """Write the page; files that are not models, and networks that cannot be built, are named in a line each."""
    models, parameters = registry.shipped_models(), {}
    for line in registry.unusable_models().values():
        print(f"profzoo: warning: left out: {line}", file=sys.stderr)
    for name, model in models.items():
        try:
            parameters[name] = count_parameters(model)
        except Exception as error:
            reason = (str(error).strip() or "no message").splitlines()[0]
            print(f"profzoo: warning: {name} cannot be built: {type(error).__name__}: {reason}", file=sys.stderr)
    path.write_text(write_zoo_page(models, parameters), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
