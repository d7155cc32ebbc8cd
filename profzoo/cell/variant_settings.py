"""Combines variants (`lstm@bf16+graph`), and rejects contradictory settings of a cell with the reason."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from profzoo import schema
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.process_count import process_count
from profzoo.errors import ConfigError

BETWEEN = "+"
# Pattern of variant names, single or joined, in files, targets and `models`.
JOINED = re.compile(rf"(?:^|(?<=@)){schema.PATTERN}(?:\+{schema.PATTERN})+")
# Steps before the window of a captured step. They run first uncaptured, to set up libraries and optimizer state. The
# last of them is a replay, so that the set-up of the first replay is not in the window.
STEPS_BEFORE_GRAPH = 3
# Precisions in which linear layers multiply in 8 bits.
EIGHT_BITS = ("fp8", "int8")


def split_names(variant: str | None) -> list[str]:
    """Split a combined variant's name into the names of its variants.

    >>> split_names("bf16+graph"), split_names("bf16"), split_names(None)
    (['bf16', 'graph'], ['bf16'], [])
    """
    return [] if variant is None else variant.split(BETWEEN)


def find_unknown(variant: str | None, variants: Iterable[str]) -> str | None:
    """First unknown variant within a combined name; None if all are known.

    >>> find_unknown("bf16+graf", ["bf16", "graph"]), find_unknown("bf16+graph", ["bf16", "graph"])
    ('graf', None)
    """
    known = set(variants)
    return next((one for one in split_names(variant) if one not in known), None)


def find_combinations(words: Iterable[str]) -> list[str]:
    """Combinations of variants that appear in words such as targets.

    >>> find_combinations(["results/lstm@bf16+graph/train.time.csv", "lstm@bf16", "fused+graph", "-j4"])
    ['bf16+graph', 'fused+graph']
    """
    return list(dict.fromkeys(found for word in words for found in JOINED.findall(word)))


def combine_changes(names: Sequence[str], variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the changes of several variants.

    >>> combine_changes(["bf16", "graph"], {"bf16": {"precision": "bf16"}, "graph": {"graph": True}})
    {'precision': 'bf16', 'graph': True}

    Raises:
        ConfigError: a variant is named twice, or two variants set one key to different values.
    """
    found: dict[str, Any] = {}
    setter: dict[str, str] = {}
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(f"variant '{BETWEEN.join(names)}' names {name} twice")
        for key, value in variants[name].items():
            nested = isinstance(value, Mapping)
            for where, item in (
                {f"{key}.{one}": item for one, item in value.items()} if nested else {key: value}
            ).items():
                other = setter.setdefault(where, name)
                if (before := _at(variants[other], where)) != item:
                    raise ConfigError(
                        f"variants {other} and {name} cannot be combined: {where} is {schema.format_choice(before)} in "
                        "the "
                        f"one and {schema.format_choice(item)} in the other"
                    )
            found[key] = {**found.get(key, {}), **value} if nested else value
    return found


def _at(changes: Mapping[str, Any], where: str) -> Any:
    outer, _, inner = where.partition(".")
    return changes[outer][inner] if inner else changes[outer]


def check_combination(cell: Mapping[str, Any]) -> None:
    """Check that a cell's settings are compatible, as far as this is known before the cell runs.

    Raises:
        ConfigError: they are not; the message gives the reason.
    """
    why = _against_eight_bits(cell) if cell["precision"] in EIGHT_BITS else None
    why = _against_checkpoints(cell) if cell["checkpoint"] and not why else why
    why = _against_graph(cell) if cell["graph"] and not why else why
    why = _against_splitting(cell) if cell["parallel"] != "ddp" and not why else why
    if why:
        raise ConfigError(f"{cell['model']} {cell['phase']}: {why}")


def _against_eight_bits(cell: Mapping[str, Any]) -> str | None:
    """Why a cell cannot multiply in 8 bits; None if it can."""
    precision = cell["precision"]
    if cell.get("command"):
        return f"precision: {precision} replaces layers of a network, which cannot be done to a script: use bf16"
    if cell["phase"] != "inference":
        return (
            f"precision: {precision} is for inference, as its layers have no backward pass: set phases to inference, "
            "or train in bf16"
        )
    return None


def _against_checkpoints(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's activations cannot be checkpointed; None if they can."""
    if cell["phase"] == "inference":
        return "checkpoint: true is for training, inference keeps no activations: set phases to train"
    if cell["graph"]:
        return (
            "checkpoint: true and graph: true cannot be combined: checkpoints save the state of random numbers, which "
            "cannot be read while a graph is captured"
        )
    return None


def _against_splitting(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's weights cannot be split over processes; None if they may be."""
    asked = f"parallel: {cell['parallel']}"
    if process_count(cast(CellSettings, cell)) == 1:
        return f"{asked} splits the network over several GPUs: set gpus to 2 or more, or parallel to ddp"
    if cell["precision"] == "fp16":
        return f"{asked} and precision: fp16 cannot be combined: gradients would be scaled in each process by itself"
    if cell["channels_last"]:
        return f"{asked} and channels_last: true cannot be combined: weights in this layout cannot be split"
    return None


def _against_graph(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's step cannot be captured in a CUDA graph; None if it may be."""
    if cell["device"] == "cpu":
        return "graph: true captures CUDA graphs, which a CPU has none of: set device to cuda, or graph to false"
    if (several := process_count(cast(CellSettings, cell))) > 1:
        return f"graph: true is for one GPU, not {several}: set gpus and nodes to 1, or graph to false"
    if cell["compile"] == "reduce-overhead":
        return "graph: true and compile: reduce-overhead cannot be combined: both make CUDA graphs, leave one out"
    if cell["precision"] == "fp16" and cell["phase"] == "train" and cell["optimizer"] != "fused":
        return (
            "graph: true and precision: fp16 train with optimizer: fused only, as others wait for the GPU to say "
            "whether gradients overflowed"
        )
    if cell["warmup"] < STEPS_BEFORE_GRAPH:
        return f"graph: true takes {STEPS_BEFORE_GRAPH} steps of warm-up or more, not {cell['warmup']}: raise warmup"
    return None
