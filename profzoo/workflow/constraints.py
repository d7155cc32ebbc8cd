"""Writes the regular expressions that wildcards of rules have to match."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

# Phases of cells that this workflow measures, in contrast to imported cells.
MEASURED = {"phase": "train|inference"}
# How many GPUs on how many nodes are joined by the links that a file is about.
LINKED = {"nodes": "[1-9][0-9]*", "gpus": "[1-9][0-9]*"}


def match_any(names: Iterable[str]) -> str:
    """A regular expression that matches exactly these names."""
    return "|".join(map(re.escape, names))


def match_models(names: Iterable[str], variants: Iterable[str]) -> str:
    """A regular expression of these models, alone or with variants: lstm, lstm@bf16, lstm@bf16+compiled.

    >>> match_models(["lstm"], ["bf16", "two"])
    '(lstm)(@(bf16|two)([+](bf16|two))*)?'
    """
    one_of = f"({match_any(variants)})"
    return f"({match_any(names)})(@{one_of}([+]{one_of})*)?"


def match_several_gpus(models: Collection[str]) -> dict[str, str]:
    """Constraints that match cells on several GPUs: training of these models."""
    return {"model": match_any(models) or "no_cell", "phase": "train"}


def match_timed_inside(own: Mapping[str, Any]) -> dict[str, str]:
    """Constraints that match cells whose baseline is timed in the profiled process; own: the profiler's settings."""
    return MEASURED if own["baseline"] else {"model": "no_cell"}


def match_sampled_sets(names: Collection[str]) -> dict[str, str]:
    """Constraints that match section sets whose launches are chosen by a plan."""
    return {"set": match_any(names) or "no_set", **MEASURED}
