"""Writes the report: one HTML page, figures inlined, that opens offline."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from profzoo.figures import inputs
from profzoo.figures import known as known_figures
from profzoo.files import read_json
from profzoo.reading import facts as fact
from profzoo.report import comparison, overview
from profzoo.report.details import detail
from profzoo.report.fields import PROCESS_COLUMNS
from profzoo.tables.cell_tables import cell_of
from profzoo.tables.ranks import read as read_ranks

FILES = ("page.html.j2", "comparison.html.j2")
TABLES = ("cells", "agreement", "activity", "steps", "verdicts")
# What of a comparison there may be.
COMPARED = ("compare", "compare_parts")
OF_RUN: fact.Needs = {"torch": fact.TEXT, "cuda": fact.maybe(fact.TEXT), "device_why?": fact.maybe(fact.TEXT)}


def main(
    tables: Mapping[str, str],
    ranks: Sequence[str],
    sidecars: Sequence[str],
    figures: Sequence[str],
    tools: Sequence[str],
    html: str,
) -> None:
    """Read the tables (by name, their paths), sidecars of the unprofiled runs and figures; write the page beside the
    folders of the cells."""
    results = Path(html).parent
    read = {name: inputs.read(name, path) for name, path in tables.items()} | {"ranks": read_ranks(ranks)}
    runs = {tuple(cell_of(path).values()): path for path in sidecars}
    told = [read_json(runs[row.model, row.phase], OF_RUN) for row in read["cells"].itertuples()]
    drawn = [_figure(path) for path in figures]
    Path(html).write_text(render(read, told, drawn, tools, results), encoding="utf-8")


def render(
    tables: Mapping[str, pd.DataFrame],
    sidecars: Sequence[Mapping[str, Any]],
    figures: Sequence[Mapping[str, Any]],
    tools: Sequence[str],
    results: Path,
) -> str:
    """The page.

    Args:
        tables: TABLES and `ranks`, and what there is of COMPARED, by name; sidecars: of the cells' unprofiled runs;
            figures: as the template takes them; tools: that were chosen; results: the folder that the cells' files are
            in.
    """
    cells = tables["cells"]
    return _rendered(
        title="profzoo report",
        **comparison.of(tables),
        **overview.of_measuring(cells, sidecars, tools),
        **overview.of_cells(cells, tables["steps"], tables["verdicts"]),
        **overview.of_agreement(tables["agreement"], tools),
        figures=[figure for figure in figures if not figure["compares"]],
        compared_figures=[figure for figure in figures if figure["compares"]],
        process_columns=list(PROCESS_COLUMNS),
        details=[detail(row, tables, results) for _, row in cells.iterrows()],
    )


def of_comparison(tables: Mapping[str, str], figures: Sequence[str], html: str) -> None:
    """Read the tables of a comparison (by name, their paths) and its figures; write a page of nothing else."""
    read, drawn = {name: inputs.read(name, path) for name, path in tables.items()}, [_figure(path) for path in figures]
    page = _rendered(title="profzoo comparison", **comparison.of(read), compared_figures=drawn, cells=[])
    Path(html).write_text(page, encoding="utf-8")


def _rendered(**given: Any) -> str:
    here = jinja2.FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    environment = jinja2.Environment(loader=here, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template(FILES[0]).render(given)


def _figure(path: str) -> dict[str, Any]:
    """A figure's markup without XML header, its name, and its caption."""
    svg = Path(path).read_text(encoding="utf-8")
    name = Path(path).stem
    # Several SVGs in one page share one space of ids.
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg[svg.index("<svg") :])
    known = known_figures()[name]
    return {"name": name, "svg": Markup(svg), "caption": known.caption, "compares": known.compares}
