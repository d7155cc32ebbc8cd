"""Lists differences of two runs besides their times: GPU, software, settings, clocks. Comparisons begin with them."""

from typing import TYPE_CHECKING, Any

from profzoo.cell import settings
from profzoo.tools.sample import clock_readings

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# Of sidecars, in the order in which they matter, with the words for them.
FACTS = {
    "device": "device",
    "host": "host",
    "driver": "driver",
    "torch": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "python": "Python",
    "threads": "CPU threads",
    "batch": "batch",
    "parameters": "parameters",
    "commit": "commit",
}
# Settings of a cell that follow from others, or say which it is.
DERIVED = ("model", "module", "steps", "samples", "window", "fit")


def describe_sidecar_differences(baseline: "Sidecar", candidate: "Sidecar") -> list[str]:
    """Return each difference of two sidecars of one cell in words, such as `torch 2.10 -> 2.11`.

    >>> before = {"torch": "2.10", "cell": {"precision": "fp32"}}
    >>> describe_sidecar_differences(before, {"torch": "2.11", "cell": {"precision": "bf16"}})
    ['torch 2.10 -> 2.11', 'precision fp32 -> bf16']
    """
    said = [
        f"{word} {_format_difference(baseline.get(key))} -> {_format_difference(candidate.get(key))}"
        for key, word in FACTS.items()
        if baseline.get(key) != candidate.get(key)
    ]
    one, other = (settings.flatten(side.get("cell", {})) for side in (baseline, candidate))
    # The batch that ran is among the facts.
    keys = [key for key in sorted({*one, *other}) if key not in DERIVED and key != "batch"]
    said += [f"{key} {_format_difference(one.get(key))} -> {_format_difference(other.get(key))}" for key in keys
             if one.get(key) != other.get(key)]  # fmt: skip
    return said + clock_readings.describe_clock_difference(baseline, candidate)


def _format_difference(value: Any) -> str:
    if value is None:
        return "none"
    # Commits in the length that git shows.
    return value[:10] if isinstance(value, str) and len(value) == 40 else str(value)
