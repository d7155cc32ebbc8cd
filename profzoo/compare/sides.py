"""The sides of a comparison: a reference side and candidates, each a variant, a run or a folder of results."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo import tools
from profzoo.cell import schema, settings
from profzoo.errors import ConfigError, suggest_nearest

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config

# The model as it is configured, without a variant.
PLAIN = "plain"
# Folder of the results of named runs, beside the results without a name.
RUNS = "runs"
# Between the names of sides in names of files.
SIDE_SEPARATOR = "-vs-"
# Rounds that are repeated until they decide are given twice, there and back, and run so often at most.
GIVEN, MOST_ROUNDS = 2, 20


@dataclass(frozen=True)
class Side:
    """A side of a comparison.

    name: name in the configuration. folder: folder of existing results; None for a variant, which is run.
    """

    name: str
    folder: Path | None = None

    def of(self, model: str) -> str:
        """Return the model's name with the side's variant.

        >>> Side("bf16").of("lstm"), Side("plain").of("lstm")
        ('lstm@bf16', 'lstm')
        """
        return model if self.folder or self.name == PLAIN else f"{model}@{self.name}"


def sides_of(config: "Config") -> list[Side]:
    """Return the sides of a comparison, the reference side first; empty if the configuration names no candidate.

    Raises:
        ConfigError: a side is neither a variant nor a folder, or is both reference side and candidate.
    """
    names = [config["reference"], *config["candidate"]] if config["candidate"] else []
    found = [_side(name, "candidate" if place else "reference", config) for place, name in enumerate(names)]
    twice = next((side.name for place, side in enumerate(found) if side in found[:place]), None)
    if twice:
        raise ConfigError(f"'{twice}' cannot be compared with itself: name another candidate, or a folder of results")
    return found


def _side(name: str, key: str, config: "Config") -> Side:
    if name == PLAIN or settings.find_unknown(name, config["variants"]) is None:
        return Side(name)
    if schema.is_name(name) and Path(RUNS, name).is_dir():
        return Side(name, Path(RUNS, name))
    if os.sep in name or name.startswith(".") or Path(name).is_dir():
        if not Path(name).is_dir():
            raise ConfigError(f"{key} = '{name}' is not a folder: name a folder of results, or a variant")
        return Side(name, Path(name))
    known = [PLAIN, *config["variants"], *(path.name for path in Path(RUNS).glob("*"))]
    raise ConfigError(f"{key} = '{name}' is not a variant, run or folder: {suggest_nearest(name, known)}")


def interleave(sides: Sequence[str], repeats: int, seed: str) -> list[str]:
    """Return the order in which processes run: each round all sides, every second round backwards.

    With an even number of rounds, a drift that is linear in time affects all sides alike (ABBA). The order of the first
    round is drawn by `seed`. Otherwise, effects on the very first process, such as cold caches, would always fall on
    the reference side.

    >>> interleave(["a", "b"], 3, "unet train")
    ['b', 'a', 'a', 'b', 'b', 'a']
    """
    first = random.Random(seed).sample(list(sides), len(sides))
    return [side for turn in range(repeats) for side in (first if turn % 2 == 0 else first[::-1])]


def check_comparable(sides: Sequence[Side], cells: Sequence[tuple[str, str]], config: "Config") -> None:
    """Check that every selected cell can be compared; cells: model and phase.

    Raises:
        ConfigError: there is no candidate, a selected model names a variant, a side's settings do not fit the model, or
            a folder has no results of the cell.
    """
    if not sides:
        raise ConfigError(
            "compare: name a candidate, such as --config candidate=bf16, and a reference unless it is plain"
        )
    for model, phase in cells:
        if "@" in model:
            raise ConfigError(f"models = '{model}' names a variant: name the model here, and the variant as candidate")
        for side in sides:
            if not side.folder:
                settings.resolve_cell(side.of(model), phase, tools.BASELINE, config)
            elif not (side.folder / model / f"{phase}.time.csv").exists():
                files = side.folder.glob("*/*.time.csv")
                there = [f"{path.parent.name} {path.name.partition('.')[0]}" for path in files]
                raise ConfigError(
                    f"{side.name} has no times of {model} {phase}: {suggest_nearest(f'{model} {phase}', there)}"
                )


def runs_in_turn(sides: Sequence[Side]) -> bool:
    """Return whether all sides can alternate here, because none is a folder of existing results."""
    return bool(sides) and not any(side.folder for side in sides)


def name_sides(sides: Sequence[Side]) -> str:
    """Return the part of file names that names sides that alternate.

    >>> name_sides([Side("plain"), Side("bf16")])
    'plain-vs-bf16'
    """
    return SIDE_SEPARATOR.join(side.name for side in sides)
