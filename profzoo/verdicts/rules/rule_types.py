"""Types of the content of rules.yaml, as rules.schema.yaml allows it, and whether it is the file that was checked."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

# Settings that a cell ran with, by key; empty where they are not known. Which of them matter is for rules to say.
KnownSettings = Mapping[str, Any]


class Bounds(TypedDict, total=False):
    """A condition on a number; exactly one of both keys is there."""

    below: float
    at_least: float


class Cause(TypedDict, total=False):
    """Launches that rules about kernels may be about: all conditions that are there have to hold."""

    # By quantity or share of profzoo/verdicts/rules/launch_traits.py.
    when: Mapping[str, Bounds]
    # Classes of kernels.
    classes: Sequence[str]
    # Regular expression for the name of the kernel.
    match: str


class Floors(TypedDict):
    """Limits of the evidence, beyond which no verdict is given."""

    # Step time under nsys over the unprofiled step time; mean of the unprofiled steps over their median.
    stretch: float
    steady: float
    # Shares: of GPU time whose launches have counters; of the step that a kernel, and an operator in a layer, takes.
    counted: float
    kernel: float
    layer: float


class ShortLaunches(TypedDict):
    """Launches of some classes that take less than this many ns on average."""

    mean_ns_below: float
    classes: Sequence[str]


class SmallGrids(TypedDict):
    """Launches with fewer blocks per multiprocessor."""

    blocks_below: float


class NearRoof(TypedDict):
    """Launches with at least this efficiency, relative to the measured roof."""

    efficiency_at_least: float


class FarFromRoof(TypedDict):
    """Launches with less than this efficiency, relative to the measured roof."""

    efficiency_below: float


class Padding(TypedDict):
    """Layers that compute at least this many times the operations that their shapes call for."""

    flop_at_least: float


class CallOverhead(TypedDict):
    """Calls on a CPU that take less than this many times the median call of operators that touch no number."""

    times_below: float
    operators: Sequence[str]


class Traits(TypedDict):
    """When a launch, a layer or a call of an operator has a trait."""

    short: ShortLaunches
    small_grid: SmallGrids
    at_the_roof: NearRoof
    far_from_the_roof: FarFromRoof
    padded: Padding
    at_the_floor: CallOverhead
    causes: Mapping[str, Cause]


class Advice(TypedDict):
    """What to do about a bottleneck, and when this is the advice."""

    # Permitted values of settings of the cell, and bounds on columns of tables/steps.csv.
    when: NotRequired[Mapping[str, Sequence[Any] | Bounds]]
    next: str
    # Setting words of `python -m models.run`; or the name of a setting of which twice the cell's value is advised.
    settings: NotRequired[str]
    doubled: NotRequired[str]
    # As of the rule, whose values they replace.
    cured: NotRequired[float | str]
    replay: NotRequired[str]


class Rule(TypedDict):
    """A bottleneck, found by one share of the step."""

    verdict: str
    # What the rule is about: "step", "kernels", "layers", "trace", "cpu", "chains" or "noted".
    of: str
    share: str
    at_least: float
    # Part of the share that the advice saves: a number, or the name of the quantity that says it of each launch.
    cured: float | str
    # Name of the change that a what-if simulation makes.
    replay: NotRequired[str]
    # What becomes of the launches: "kept", "changed" or "removed"; of rules about kernels and layers.
    launches: NotRequired[str]
    advice: Sequence[Advice]
    source: str


class Explanation(TypedDict):
    """Verdicts that explain others, before which they come."""

    # The causes; without it, any verdict but those that are explained may be one.
    by: NotRequired[Sequence[str]]
    explains: Sequence[str]
    # "always", "prevented" or "simulated", as rules.yaml has it.
    when: str
    # The reason, as the end of a sentence.
    because: str


class Rules(TypedDict):
    """All rules with their floors and traits, and how verdicts are ordered."""

    floors: Floors
    traits: Traits
    explanations: Sequence[Explanation]
    rules: Sequence[Rule]


class ExtensionRules(TypedDict):
    """Rules and causes of an extension, judged by profzoo's floors and traits."""

    causes: NotRequired[Mapping[str, Cause]]
    rules: Sequence[Rule]


# Tells whether rules.yaml is the file that `make docs` checked last, without the seconds that checking it takes.

FILES = ("rules.yaml", "checked_rules.yaml")
RULES_FILE, NOTE = (Path(__file__).with_name(name) for name in FILES)


def is_checked() -> bool:
    """Return whether the shipped rules are those that were checked last."""
    return NOTE.exists() and NOTE.read_text(encoding="utf-8") == _digest()


def note_checked() -> None:
    """Note that the shipped rules were checked as they are."""
    NOTE.write_text(_digest(), encoding="utf-8")


def _digest() -> str:
    return f"sha256: {hashlib.sha256(RULES_FILE.read_bytes()).hexdigest()}\n"
