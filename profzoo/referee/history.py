"""Keeps how long steps of the main branch took, by machine, and finds where they became longer or shorter.

A file has a line of JSON for each measurement, with the machine that it was made on. Points of two machines are never
compared. A step in a series is found by binary segmentation (Vostrikova 1981) with the largest standardized difference
of means, whose probability comes from permutations. Its place has a confidence set by resampling, and its size the
interval of Hodges and Lehmann.
"""

import importlib.metadata
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profzoo.errors import DataError
from profzoo.machine import gpus
from profzoo.records import digests
from profzoo.statistics import speedup

VERSION = 1
# What tells machines apart, and what stands for a part that a machine does not have.
TORCH, NONE = "torch", "none"
FACTS = ("gpu", "cpu", "driver", TORCH)
# Hexadecimal digits of a machine's name.
NAME_LENGTH = 8
# Digits of a commit in a line.
SHORT = 9
# Probability of a step where there is none, in a whole series at first and in each part of it after a step;
# permutations; and the fewest points on each side of a step.
LEVEL, PERMUTATIONS, LEAST = 0.01, 1999, 4
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Point:
    """A measurement: seconds of a step of a program at a commit. committed: when the commit was made, ISO 8601."""

    machine: str
    facts: Mapping[str, str]
    commit: str
    committed: str
    program: str
    seconds: float


@dataclass(frozen=True)
class Step:
    """A change between the points `place - 1` and `place` of a series.

    first, last: confidence set of the place. ratio, low, high: time after over time before, and its interval. p:
    probability of such a difference without a step.
    """

    place: int
    first: int
    last: int
    ratio: float
    low: float
    high: float
    p: float


def describe_machine() -> dict[str, str]:
    """Return what tells this machine apart from others."""
    found = gpus.list_gpus()
    gpu, driver = (found[0].get(name, NONE) if found else NONE for name in ("gpu", "driver"))
    try:
        torch = importlib.metadata.version(TORCH)
    except importlib.metadata.PackageNotFoundError:
        torch = NONE
    count = f"{len(found)} x " if len(found) > 1 else ""
    return {"gpu": f"{count}{gpu}", "cpu": _name_cpu(), "driver": driver, TORCH: torch}


def _name_cpu(file: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the CPU, with the number of its logical cores."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()


def name_machine(facts: Mapping[str, str]) -> str:
    """Return a short name that two machines share only if all their facts are the same."""
    text = json.dumps([facts.get(name, NONE) for name in FACTS])
    return digests.text_digest(text).rpartition(":")[2][:NAME_LENGTH]


def describe_facts(facts: Mapping[str, str]) -> str:
    """Say what a machine is.

    >>> describe_facts({"gpu": "none", "cpu": "2 x EPYC", "driver": "none", "torch": "2.11.0"})
    '2 x EPYC, torch 2.11.0'
    """
    told = {name: facts[name] for name in FACTS if facts[name] != NONE}
    return ", ".join(f"{name} {text}" if name in ("driver", TORCH) else text for name, text in told.items())


# The file.


def read_history(path: Path) -> list[Point]:
    """Return the points of a file, in its order; none if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    if not path.exists():
        return []
    points = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            points.append(_parse_line(line, f"{path}, line {number}"))
    return points


def _parse_line(line: str, where: str) -> Point:
    again = "delete the line; the others stay as they are"
    try:
        found = json.loads(line)
        facts = {name: str(found["facts"][name]) for name in FACTS}
        point = Point(
            str(found["machine"]), facts, str(found["commit"]), str(found["committed"]), str(found["program"]),
            float(found["seconds"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where} is damaged ({type(error).__name__}: {error}): {again}") from error
    if found.get("version") != VERSION:
        raise DataError(f"{where} has version {found.get('version')!r}, and this release reads {VERSION}: update it")
    if point.machine != name_machine(facts):
        raise DataError(f"{where} has facts of another machine than {point.machine}: {again}")
    if not 0 < point.seconds < math.inf:
        raise DataError(f"{where} has a time of {point.seconds:g} s: {again}")
    return point


def add_points(path: Path, points: Sequence[Point]) -> int:
    """Append points to a file; what is there already is left out. Returns how many were added."""
    known = read_history(path)
    new = [point for point in points if point not in known]
    lines = [json.dumps({"version": VERSION, **asdict(point)}, ensure_ascii=True) + "\n" for point in new]
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if text and not text.endswith("\n") else "") + "".join(lines))
    return len(new)


def make_points(
    claims: Iterable[Mapping[str, Any]], facts: Mapping[str, str], commit: str, committed: str
) -> list[Point]:
    """Return the points of the claims of an answer that say how long a step takes, in seconds."""
    machine = name_machine(facts)
    return [
        Point(machine, dict(facts), commit, committed, claim["subject"], claim["value"])
        for claim in claims
        if claim["unit"] == "s" and claim["outcome"] == "measured"
    ]


def group_points(points: Iterable[Point]) -> dict[tuple[str, str], list[Point]]:
    """Return the series of each machine and program, in the order of their commits' times."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        found.setdefault((point.machine, point.program), []).append(point)
    return {key: sorted(found[key], key=lambda point: point.committed) for key in sorted(found)}


# Steps of a series.


def describe_steps(series: Sequence[Point], steps: Sequence[Step]) -> list[str]:
    """Say in a line each which steps a series has."""
    lines = []
    for step in steps:
        point, longer = series[step.place], "longer" if step.ratio > 1 else "shorter"
        others = [series[at].commit[:SHORT] for at in (step.first, step.last)]
        where = f"; it is one of {others[0]} to {others[1]} with {CONFIDENCE:.0%}" if others[0] != others[1] else ""
        size = f"{step.ratio:.3f} times ({step.low:.3f} to {step.high:.3f})"
        lines.append(f"{longer} since {point.commit[:SHORT]} ({point.committed[:10]}): {size}{where}")
    return lines


def find_steps(seconds: Sequence[float], level: float = LEVEL, seed: int = 0) -> list[Step]:
    """Return the steps of a series of times, in their order.

    The probability to find a step in a series without one is `level`, if its points do not depend on each other. Drift
    of a machine makes them depend, and is found as steps.
    """
    values, chance = np.log(np.asarray(seconds, dtype=float)), np.random.default_rng(seed)
    places: dict[int, float] = {}
    parts = [(0, len(values))]
    while parts:
        begin, end = parts.pop()
        found = _find_one(values[begin:end], chance)
        if found and found[1] <= level:
            place, p = begin + found[0], found[1]
            places[place] = p
            parts += [(begin, place), (place, end)]
    edges = [0, *sorted(places), len(values)]
    steps = []
    for before, place, after in zip(edges, edges[1:-1], edges[2:], strict=False):
        steps.append(_describe_step(values, before, place, after, places[place], chance))
    return steps


def _statistics(values: np.ndarray) -> np.ndarray:
    """Return for each place that may be a step the standardized difference of means, for each row of values."""
    count = values.shape[-1]
    sizes = np.arange(LEAST, count - LEAST + 1)
    sums = values.cumsum(axis=-1)
    total = sums[..., -1:]
    left = sums[..., sizes - 1]
    between = (left - total * sizes / count) ** 2 * count / (sizes * (count - sizes))
    whole = (values**2).sum(axis=-1, keepdims=True) - total**2 / count
    # The rest's variance is that of both sides about their own means.
    rest = np.maximum(whole - between, 1e-12 * np.maximum(whole, 1e-300))
    found: np.ndarray = between / rest
    return found


def _find_one(values: np.ndarray, chance: np.random.Generator) -> tuple[int, float] | None:
    """Return the most likely place of a step, and its probability without one; None for a series that is too short."""
    if len(values) < 2 * LEAST or np.ptp(values) == 0:
        return None
    observed = _statistics(values)
    drawn = _statistics(chance.permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1)).max(axis=1)
    p = (1 + int((drawn >= observed.max() * (1 - 1e-12)).sum())) / (1 + PERMUTATIONS)
    return LEAST + int(observed.argmax()), p


def _describe_step(
    values: np.ndarray, before: int, place: int, after: int, p: float, chance: np.random.Generator
) -> Step:
    """Return a step with its uncertainty; before, after: the places of its neighbours."""
    one, other = values[before:place], values[place:after]
    ends = speedup.two_sample_shift(one, other, CONFIDENCE)
    low, high = ends.ends or (-math.inf, math.inf)
    first, last = _find_set(values[before:after], place - before, chance)
    return Step(place, before + first, before + last, math.exp(ends.middle), math.exp(low), math.exp(high), p)


def _find_set(values: np.ndarray, place: int, chance: np.random.Generator) -> tuple[int, int]:
    """Return the ends of the confidence set of a step's place, by resampling (Huskova and Kirch 2008).

    Residuals of both sides are drawn anew around the step, and the step is found again.
    """
    sides = (values[:place], values[place:])
    fitted = np.concatenate([np.full(len(side), side.mean()) for side in sides])
    # A mean that is fitted takes a part of the spread, which the residuals lack.
    residuals = np.concatenate([(side - side.mean()) * math.sqrt(len(side) / max(len(side) - 1, 1)) for side in sides])
    drawn = fitted + chance.choice(residuals, (PERMUTATIONS, len(values)))
    found = LEAST + _statistics(drawn).argmax(axis=1)
    # The set is symmetric about the estimate by what drawn places miss the place by.
    low, high = np.quantile(found - place, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="inverted_cdf")
    first, last = place - int(high), place - int(low)
    return max(min(first, place), 1), min(max(last, place), len(values) - 1)
