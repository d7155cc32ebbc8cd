"""Reads the sidecars of measured files, with their type."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from profzoo.io import sidecars

if TYPE_CHECKING:
    from profzoo.cell.job_types import ScriptFacts, Sidecar


def read_facts(path: str | Path, needs: sidecars.Needs = sidecars.NOTHING) -> "Sidecar":
    """Read a sidecar and check its declared keys; needs: which keys are required, and what they hold.

    Raises:
        DataError: the file cannot be read, is not a JSON object, or lacks a required key.
    """
    return cast("Sidecar", sidecars.read_sidecar(path, needs))


# Describes the step of a script in words, from the facts in its sidecar.

# Words for the counts of a step, in the order in which they are printed.
COUNTED = (
    ("batches", "batch", "batches"),
    ("forward calls", "forward call", "forward calls"),
    ("backward passes", "backward pass", "backward passes"),
    ("optimizer steps", "optimizer step", "optimizer steps"),
)


def describe_counts(counts: Mapping[str, int]) -> str:
    """Describe what happens in a step.

    >>> describe_counts({"forward calls": 3, "optimizer steps": 1})
    '3 forward calls, 1 optimizer step'
    """
    return ", ".join(
        f"{counts[key]} {one if counts[key] == 1 else several}" for key, one, several in COUNTED if counts.get(key)
    )


def describe_step(script: "ScriptFacts") -> str:
    """Describe which event ended a step of a script, and how regular the steps were.

    script: value of the key `script` in a sidecar.

    >>> describe_step({"step": "a step of SGD", "per_step": {"batches": 1, "optimizer steps": 1}, "regular_share": 0.9})
    'A step ends with a step of SGD: 1 batch, 1 optimizer step in 90 % of the steps of the window'
    """
    share = round(script["regular_share"] * 100)
    counts = describe_counts(script["per_step"])
    return f"A step ends with {script['step']}: {counts} in {share} % of the steps of the window"
