"""Finds the figures. Each figure is one module; literals in it declare its inputs and are read without an import."""

import functools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import extensions
from profzoo.errors import ConfigError, UnusableError
from profzoo.records import import_graph

HERE = Path(__file__).parent
# Tables of a comparison: its outcomes, and the contributions to differences in time.
COMPARISON, PARTS = "compare", "compare_parts"
# What figures of tokens need: a model that generates them, or the table of their parts.
GENERATING, TOKENS = "generating", "tokens"
# Declarations that every figure must have.
KINDS: dict[str, tuple[type, ...]] = {
    "ORDER": (int, float),
    "TITLE": (str,),
    "INPUTS": (tuple, list),
    "NEEDS": (tuple, list),
    "CAPTION": (str,),
}


@dataclass(frozen=True)
class Figure:
    """The declarations in a figure's module.

    order: place in the report. title: title in words. inputs: names of the tables that `draw` takes, in order. needs:
    conditions, one of which must be met; empty for no condition. A condition is the name of a tool, an activity of
    chosen tools (tools.DOES), a kind of file that they provide (tools.PROVIDED), combined data (`roofline`,
    `layer_counters`), a model that generates tokens (`generating`), or the table `tokens` or one of a comparison.
    options: keys of the configuration's `figures` that `draw` takes by name. caption: explanation for readers.
    cpu_title, cpu_caption: title and caption if all cells ran on a CPU; imported_caption: caption if all cells were
    made elsewhere. path, module: file and dotted name.
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
    imported_caption: str
    path: Path
    module: str

    def said(self, on_cpu: bool, imported: bool = False) -> tuple[str, str]:
        """Return title and caption; on_cpu, imported: whether all cells ran on a CPU, or were made elsewhere."""
        title, caption = (self.cpu_title, self.cpu_caption) if on_cpu else (self.title, self.caption)
        return title, self.imported_caption if imported and self.imported_caption else caption

    @property
    def compares(self) -> bool:
        """Return whether the figure shows a comparison, and not single cells."""
        return COMPARISON in self.inputs

    @property
    def dated_by(self) -> str:
        """Return the name of the table that holds devices and dates of the figure's measurements."""
        return COMPARISON if self.compares else "cells"


def all_figures() -> dict[str, Figure]:
    """Return all figures by name, in their order: modules of this package and of extensions that declare ORDER.

    Raises:
        ConfigError: an extension's module is not valid Python, has another figure's name, or lacks a declaration.
    """
    return _known(extensions.folders())


@functools.cache
def _known(extended: tuple[Path, ...]) -> dict[str, Figure]:
    shipped, own = _declared(HERE.glob("*.py")), _declared(extensions.files("figures/*.py"))
    extensions.refuse_clashes("figure", [(path.stem, path) for path in own], [path.stem for path in shipped])
    found = [_make_figure(path, values) for path, values in (shipped | own).items()]
    return {figure.name: figure for figure in sorted(found, key=lambda figure: (figure.order, figure.name))}


def _declared(paths: Iterable[Path]) -> dict[Path, dict[str, Any]]:
    try:
        declared = {path: import_graph.read_literals(path) for path in paths}
    except UnusableError as error:
        raise ConfigError(str(error)) from error
    return {path: values for path, values in declared.items() if "ORDER" in values}


def list_drawable(have: Collection[str]) -> list[str]:
    """Return the names of the figures for which there is data.

    have: chosen tools, their activities and files, combined data, and tables of a comparison if there is one.
    """
    return [name for name, figure in all_figures().items() if not figure.needs or set(figure.needs) & set(have)]


def _make_figure(path: Path, values: dict[str, Any]) -> Figure:
    if missing := [key for key, kind in KINDS.items() if not isinstance(values.get(key), kind)]:
        raise ConfigError(f"{path}: a figure declares {', '.join(KINDS)} as literals, and {missing[0]} is none here")
    given = {key.lower(): values[key] for key in KINDS}
    given["imported_caption"] = values.get("IMPORTED_CAPTION", "")
    own = {f"cpu_{key}": values.get(f"CPU_{key.upper()}", given[key]) for key in ("title", "caption")}
    module = extensions.module_name(path) or f"{__name__}.{path.stem}"
    return Figure(path.stem, path=path, module=module, options=values.get("OPTIONS", ()), **given, **own)
