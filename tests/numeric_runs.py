"""Runs cells of tests/planted_numerics.py and tests/planted_programs.py in this process, and takes what they computed.

Also makes sides by hand of given numbers.
"""

import argparse
import functools
import math
from typing import Any, cast
from unittest import mock

import torch

from profzoo.cell import settings
from profzoo.cell.cell_types import CellSettings
from profzoo.compare import numeric_checks
from profzoo.compare.numeric_checks import NumericSide
from profzoo.config import configuration
from profzoo.harness.step import double_precision, measure

MODULE = "tests.planted_numerics"
FILES = ("load", "save", "memory", "trace", "operators", "steps")


@functools.cache
def side(
    network: str, phase: str, changed: str = "none", module: str = MODULE, device: str = "cpu", **more: Any
) -> NumericSide:
    """What a side computes; more: settings of its cell, which has one CPU thread unless they say otherwise."""
    given = {"module": module, "network": network, "changed": changed, "warmup": 3, "window": 4, "threads": 1, **more}
    checked = configuration.normalise_config({"settings": {"planted": given}, "device": device})
    cell = settings.resolve_cell("planted", phase, "time", checked)
    options = argparse.Namespace(**dict.fromkeys(FILES), at_least_s=0.0, numerics=True)
    threads = torch.get_num_threads()
    # On a busy machine, fewer steps would be repeated within the usual seconds, and less would be found.
    with mock.patch.multiple(double_precision, BUDGET_S=math.inf, LONGEST_S=math.inf, ROUNDING_S=math.inf):
        facts: Any = measure.run_cell(cell, options)
    torch.set_num_threads(threads)
    return numeric_checks.read_side(facts, cast(CellSettings, cell), [facts])


UNIT = 2.0**-24


def of(own: Any = None, exact: Any = None, **given: Any) -> NumericSide:
    """A side that computed `own` numbers, and `exact` ones in double precision."""
    common = {"precision": "fp32", "batch": 2, "parameters": 1000, "steps": 4, "first_losses": []}
    double = {**({"steps": exact} if exact else {}), **given.pop("double", {})}
    return NumericSide(**{"own": own, "double": double, **common, **given})


def steps_of(losses: list[float | None], **given: Any) -> Any:
    """Numbers of steps with these losses."""
    nothing: dict[str, Any] = {"gradient_norms": [], "buffer_norms": [], "outputs": [], "last_outputs": []}
    return {"losses": losses, "used_parameters": 9, "data_sums": [0.0] * len(losses), **nothing, **given}


def sample_of(values: list[float], rms: float | None) -> Any:
    """Values of a tensor; rms: their root mean square, None if they are whole numbers."""
    return {"values": values, "rms": rms}
