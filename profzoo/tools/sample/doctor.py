"""Checks whether NVML answers on this machine."""

from collections.abc import Sequence

from profzoo.machine import doctor_checks
from profzoo.machine.doctor_checks import Check, Finding
from profzoo.tools.sample import nvml
from profzoo.tools.sample.failures import CAUSES

NAME = "NVML"


def list_checks() -> Sequence[Check]:
    """List the check of NVML: the library, and the values that a GPU reports."""
    return (check_nvml,)


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
