"""The figures, a module each, which declares in literals what it is drawn from; read without importing what draws."""

import functools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import import_graph

HERE = Path(__file__).parent
# What a comparison has data for: its verdicts, and where differences lie.
COMPARISON, PARTS = "compare", "compare_parts"


@dataclass(frozen=True)
class Figure:
    """What a figure's module declares.

    order: its place in the report; title: in words; inputs: names of the tables that `draw` takes, in order;
    needs: tools, what is made of several (`roofline`, `layer_counters`), or tables of a comparison, of which one must
    have data, empty for none; options: keys of the configuration's `figures` that `draw` takes by name; caption: what
    readers need to know; cpu_title, cpu_caption: the same of nothing but cells on a CPU.
    """

    name: str
    order: int
    title: str
    inputs: tuple[str, ...]
    needs: tuple[str, ...]
    options: tuple[str, ...]
    caption: str
    cpu_title: str
    cpu_caption: str

    def said(self, on_cpu: bool) -> tuple[str, str]:
        """Title and caption; on_cpu: whether all cells ran on a CPU."""
        return (self.cpu_title, self.cpu_caption) if on_cpu else (self.title, self.caption)

    @property
    def path(self) -> Path:
        """The file of its module."""
        return HERE / f"{self.name}.py"

    @property
    def compares(self) -> bool:
        """Whether it is of a comparison, and not of the cells as they are."""
        return COMPARISON in self.inputs

    @property
    def dated_by(self) -> str:
        """The table that says on what devices and when its numbers were measured."""
        return COMPARISON if self.compares else "cells"


@functools.cache
def all_figures() -> dict[str, Figure]:
    """All figures by name, in their order: the modules here that declare an order."""
    declared = {path.stem: import_graph.read_literals(path) for path in HERE.glob("*.py")}
    found = [_make_figure(name, values) for name, values in declared.items() if "ORDER" in values]
    return {figure.name: figure for figure in sorted(found, key=lambda figure: (figure.order, figure.name))}


def list_drawable(have: Collection[str]) -> list[str]:
    """Names of the figures that there is data for.

    have: chosen tools, what is made of several, and tables of a comparison where there is one.
    """
    return [name for name, figure in all_figures().items() if not figure.needs or set(figure.needs) & set(have)]


def _make_figure(name: str, values: dict[str, Any]) -> Figure:
    given = {key.lower(): values[key] for key in ("ORDER", "TITLE", "INPUTS", "NEEDS", "CAPTION")}
    own = {f"cpu_{key}": values.get(f"CPU_{key.upper()}", given[key]) for key in ("title", "caption")}
    return Figure(name, options=values.get("OPTIONS", ()), **given, **own)
