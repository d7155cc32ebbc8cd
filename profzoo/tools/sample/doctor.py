"""Checks whether NVML answers on this machine, and what would make its GPUs slower than others of their kind."""

import os
from collections import Counter
from collections.abc import Sequence

from profzoo.errors import ConfigError
from profzoo.machine import doctor_checks, gpus
from profzoo.machine.doctor_checks import Check, Finding
from profzoo.tools.sample import gpu_state, nvml
from profzoo.tools.sample.failures import CAUSES
from profzoo.tools.sample.gpu_state import GpuState

NAME = "NVML"
# Table of the samples of a cell: 200 steps, and ten lines a second, with 100 bytes a line.
REPORT_BYTES = 100_000
# Number of processes on GPUs that are named.
SHOWN = 2


def list_checks() -> Sequence[Check]:
    """List the checks of NVML: the library, and the state of the GPUs."""
    return (check_nvml, check_clocks, check_power, check_others)


def describe_use(lacking: frozenset[str]) -> str | None:
    """Return `sample` if NVML can be sampled here, else None; it needs a GPU that torch can use."""
    return None if lacking & {"GPU", "torch CUDA", "torch", NAME} else "sample"


def check_nvml() -> Finding:
    """Check which values the first GPU reports through NVML."""
    try:
        with nvml.open_library() as library:
            found = library.present()
            told = library.device(found[0]["gpu_uuid"]).reading() if found else {}
            driver = library.driver()
    except nvml.NvmlError as error:
        said = str(error)
        return Finding(NAME, said.removeprefix(f"{NAME}: "), doctor_checks.match_cause(said, CAUSES))
    silent = [name.rpartition("_")[0].replace("_", " ") for name, value in told.items() if value is None]
    if not found:
        return Finding(NAME, f"{driver}, no GPU", "see GPU above")
    return Finding(NAME, f"{driver}, {len(found)} GPU(s)" + (f"; no {', '.join(silent)}" if silent else ""))


def check_clocks() -> Finding | None:
    """Check whether the clocks of the GPUs are held down; None without a GPU."""
    states = [state for state in _states() if state.sm_clock_mhz is not None]
    if not states:
        return None
    lowered = any(state.reasons for state in states)
    advice = "times depend on it: `nvidia-smi -q -d PERFORMANCE,CLOCK` says more" if lowered else None
    return Finding("SM clock", _count(map(_clock, states)), advice)


def check_power() -> Finding | None:
    """Check whether the power limit is below the one that the GPU starts with; None if no GPU reports it."""
    states = [state for state in _states() if state.limit_mw is not None]
    if not states:
        return None
    lowered = any(state.default_mw is not None and (state.limit_mw or 0) < state.default_mw for state in states)
    advice = "compare times only with those of the same limit; `nvidia-smi -q -d POWER` shows it" if lowered else None
    return Finding("power limit", _count(map(_limit, states)), advice)


def check_others() -> Finding | None:
    """Check which programs use the GPUs now; None without a GPU."""
    states = _states()
    if not states:
        return None
    found = list(dict.fromkeys(process for state in states for process in state.processes))
    if not found:
        return Finding("GPU processes", "none")
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    advice = f"they slow measured programs down: wait for them, or choose another GPU by {gpus.VISIBLE}"
    return Finding("GPU processes", ", ".join(found[:SHOWN]) + more, advice)


def _states() -> list[GpuState]:
    """States of the GPUs that a job may use; empty if they cannot be known, which other checks report."""
    try:
        with nvml.open_library() as library:
            words = gpus.choose_candidates(os.environ, library.present())
            return [gpu_state.read_state(library, word) for word in words]
    except (nvml.NvmlError, ConfigError):
        return []


def _clock(state: GpuState) -> str:
    highest = f" of at most {state.highest_mhz}" if state.highest_mhz else ""
    why = ", ".join(state.reasons) or ("idle" if state.idle else "")
    return f"{state.sm_clock_mhz}{highest} MHz" + (f" ({why})" if why else "")


def _limit(state: GpuState) -> str:
    """Power limit in words.

    >>> _limit(GpuState(None, None, False, (), 500_000, 700_000, ()))
    '500 W, below the default of 700 W'
    """
    limit, default = (value and value / 1e3 for value in (state.limit_mw, state.default_mw))
    if default is None or limit is None or limit == default:
        return f"{limit:.0f} W" + (", the default" if default else "")
    return f"{limit:.0f} W, {'below' if limit < default else 'above'} the default of {default:.0f} W"


def _count(texts: "map[str]") -> str:
    """Join texts of several GPUs, with the number of GPUs that have each."""
    found = Counter(texts)
    return "; ".join(f"{text} ({many} GPUs)" if many > 1 else text for text, many in found.items())
