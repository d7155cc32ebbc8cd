"""Write docs/reference/zoo.md: declarations of the models' files, and what their networks hold and compute."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from profzoo.cell import registry
from profzoo.json_types import GivenSettings

INTRODUCTION = """# The zoo

Here you find the models that come with profzoo, with their sizes and where they are from.

Generated from the models' files by `make docs`; do not edit. Weights are random and data is synthetic: nothing is ever
downloaded. `models=` takes names and groups: `--config models=vgg16,segmentation,lstm@bf16`.

Parameters are counted, of the network of the workload `trimmed`. Batch × shape are those of training | inference.
`trimmed` is the default and fits a GPU of 8 GB; `reference` has the networks, batches and sizes of AI Benchmark 0.1.2
([below](#against-ai-benchmark)), `large` its five inferences on large images, and `single` its sixteen of batch 1.
Whatever is named there is a setting of the model: `settings: {unet: {size: 128, batch: 4}}`.
"""
COMPARISON = """## Against AI Benchmark

One inference of the workload `reference`, of the whole batch, beside that of AI Benchmark 0.1.2. Its figures are read
from the TensorFlow graphs in its package (`python -m tests.benchmarks.original_graphs`): the weights, biases, scales
and shifts that it holds, and twice the multiplications of the convolutions and matrix products that lead to its output.
Here they are counted on torch's meta device. A test holds them within 1 %.

AI Benchmark trains every network by the squared error of its output, with auxiliary heads that it holds and does not
run, and with batch norm as in inference. Here generators train without a discriminator, too, and all other models as
their papers say. gnmt has no training there, and pspnet has one image instead of two.

| model | settings | parameters | of the original | operations | of the original | how the original differs |
|---|---|---|---|---|---|---|"""
RELEASES = """## Against the releases

One sample's pass through the network at the sizes of its release, counted on torch's meta device, beside the release's
own figures; a product with its addition counts as two. Operations that no source tells are derived from the published
sizes, by formulas in `tests/unit/test_models.py`. A test holds what is published within 1 %.

| model | settings | parameters | of the release | operations | of the release | source | how the network differs |
|---|---|---|---|---|---|---|---|"""
MISSING = "–"
WORKLOADS = ("trimmed", "reference", "large", "single")
# Settings of a workload that one pass of a sample does not depend on.
INNER = ("batch", "generated")
Counts = tuple[int, int]


def count_parameters(model: registry.Model) -> int:
    """Count the parameters of a model's network, built on torch's meta device without memory."""
    import torch

    from profzoo.harness import interface

    workload = model.workloads.get("trimmed") or next(iter(model.workloads.values()))
    declared = workload.get("train") or next(iter(workload.values()))
    with torch.device("meta"):
        network = interface.load_functions(model.module).build(SimpleNamespace(**{**model.shape, **declared}))
    return sum(parameter.numel() for parameter in network.parameters())


def count_reference(model: registry.Model) -> Counts:
    """Parameters, and operations of products in one inference of the workload `reference`, on the meta device.

    For a model whose reference is a release, they are of one sample's pass through the network of the release's sizes.
    """
    import torch
    from torch.utils.data import default_collate
    from torch.utils.flop_counter import FlopCounterMode

    from profzoo.harness import interface
    from profzoo.harness.step import batches

    released, declared = "source" in model.reference, dict(model.workloads["reference"]["inference"])
    batch = declared.pop("batch")
    shape = SimpleNamespace(**({**declared, **model.shape} if released else {**model.shape, **declared}))
    functions, meta = interface.load_functions(model.module), torch.device("meta")
    sample = functions.sample(shape, torch.Generator().manual_seed(0))
    whole = (functions.collate or default_collate)([sample] * (1 if released else batch))
    inputs, _ = batches.move_to_device(whole, meta, torch.contiguous_format)
    with meta, torch.no_grad(), FlopCounterMode(display=False) as counter:
        network = functions.build(shape).eval()
        (network if released else partial(functions.infer, network))(inputs)
    return sum(parameter.numel() for parameter in network.parameters()), counter.get_total_flops()


def write_zoo_page(
    models: Mapping[str, registry.Model], parameters: Mapping[str, int], counted: Mapping[str, Counts]
) -> str:
    """The page, in Markdown: the models, where published counts differ, the originals, the groups.

    parameters: of the networks, by model; one that is not there could not be counted. counted: those and the operations
    of the workload `reference`, of the models that declare an original.
    """
    columns = " | ".join(("model", "parameters", *WORKLOADS, "source"))
    lines = [INTRODUCTION, f"| {columns} |", "|---" * (len(WORKLOADS) + 3) + "|"]
    for name, model in models.items():
        shown = (
            _format_number(parameters.get(name)),
            *(_format_workload(model, workload) for workload in WORKLOADS),
            model.source or MISSING,
        )
        lines.append(f"| `{name}` | {' | '.join(shown)} |")
    lines += ["", *_list_differences(models, parameters), *_compare(models, counted)]
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


def _compare(models: Mapping[str, registry.Model], counted: Mapping[str, Counts]) -> list[str]:
    """Tables of counts beside those of the originals and of the releases; no lines where there is none."""
    lines = []
    for heading, released in ((COMPARISON, False), (RELEASES, True)):
        chosen = [name for name in counted if ("source" in models[name].reference) == released]
        rows = [_compare_one(name, models[name], counted[name]) for name in chosen]
        lines += [*heading.splitlines(), *rows, ""] if rows else []
    return lines


def _compare_one(name: str, model: registry.Model, counted: Counts) -> str:
    original, declared = model.reference, model.workloads["reference"]["inference"]
    figures = (counted[0], original["parameters"], counted[1], original["operations"])
    released = "source" in original
    settings = {key: value for key, value in declared.items() if (key in model.shape) != released and key not in INNER}
    words = [original["source"]] if released else []
    cells = (_format_settings(settings), *map(_format_number, figures), *words, original.get("difference", ""))
    return f"| `{name}` | {' | '.join(cells)} |"


def _format_number(count: int | None) -> str:
    return MISSING if count is None else f"{count:,}"


def _format_workload(model: registry.Model, workload: str) -> str:
    """Batch and sizes of each phase, without what the settings of an original say."""
    shown: dict[str, None] = {}
    for declared in model.workloads.get(workload, {}).values():
        sizes = {key: value for key, value in declared.items() if key not in {"batch", *model.shape}}
        shown[" × ".join(filter(None, [str(declared["batch"]), _format_settings(sizes)]))] = None
    return " \\| ".join(shown) or MISSING


def _format_settings(settings: GivenSettings) -> str:
    return ", ".join(f"{key} {str(value).lower()}" for key, value in settings.items())


def main(path: Path) -> None:
    """Write the page; files that are not models, and networks that cannot be built, are named in a line each."""
    models, parameters, counted = registry.shipped_models(), {}, {}
    for line in registry.unusable_models().values():
        print(f"profzoo: warning: left out: {line}", file=sys.stderr)
    for name, model in models.items():
        try:
            parameters[name] = count_parameters(model)
            if model.reference:
                counted[name] = count_reference(model)
        except Exception as error:
            reason = (str(error).strip() or "no message").splitlines()[0]
            print(f"profzoo: warning: {name} cannot be built: {type(error).__name__}: {reason}", file=sys.stderr)
    path.write_text(write_zoo_page(models, parameters, counted), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
