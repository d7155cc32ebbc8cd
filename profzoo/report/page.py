"""Write the report: one HTML page with inlined figures, which opens offline."""

import base64
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, cast

import jinja2
import pandas as pd
from markupsafe import Markup

from profzoo import zoo_tables
from profzoo.cell import script_steps
from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.figures import all_figures as known_figures
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json
from profzoo.json_types import TemplateVariables
from profzoo.report import (
    cell_data,
    comparison_section,
    glossary,
    heading_hints,
    inline_svg,
    inside_kernels,
    overview,
    process_section,
    savings,
    savings_section,
    value_formats,
)
from profzoo.report.cell_section import describe_cell
from profzoo.report.value_formats import PROCESS_COLUMNS
from profzoo.tables.cell_tables import cell_of
from profzoo.tables.rank_imbalance import read as read_ranks
from profzoo.tools.ncu.chart_sets import CHARTS
from profzoo.verdicts import table_columns as verdicts

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar
    from profzoo.tools.nsys.median_step import Timeline

TEMPLATE = "page.html.j2"
FILES = ("*.html.j2", "assets/*.css", "assets/*.js")
HERE = Path(__file__).parent
TABLES = ("cells", "agreement", "activity", "steps")
# Optional tables: of a comparison, of predicted gains, and of the data from which cells are drawn.
COMPARISON_TABLES = ("compare", "compare_parts", "compare_counters")
OF_VERDICTS = ("verdicts", "plans", "waits", "repetition")
OPTIONAL_TABLES = (
    *COMPARISON_TABLES, *OF_VERDICTS, *CHARTS, "latency", "kernels", "ranges", "roofline", "layers", "peaks",
)  # fmt: skip
# The page's content security policy. It may run its own script, known by its hash, and load its styles, the pictures in
# its figures, and traces beside it. It may load nothing from any other site.
POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
RUN_FACTS: fact.Needs = {"torch": fact.TEXT, "cuda": fact.or_null(fact.TEXT), "device_why?": fact.or_null(fact.TEXT)}


class PageFigure(TypedDict):
    """A figure of the page; compares: whether it is about a comparison."""

    name: str
    title: str
    svg: Markup
    caption: str
    compares: bool


class PageOptions(TypedDict):
    """What the page is made by besides files."""

    # Tools that were chosen.
    tools: Sequence[str]
    # Paths of the timelines of typical steps.
    timelines: Sequence[str]
    # Paths of tables of source lines, where there are any.
    lines: Sequence[str]
    # Paths of the tables of collective operations and skew, of cells on several GPUs.
    operations: Sequence[str]
    # Model, phase and `why` of cells that were selected and cannot be made.
    lacking: Sequence[Mapping[str, str]]
    # `address` of Perfetto's page, and what to `type` so that it can be handed traces.
    perfetto: Mapping[str, str]


def main(
    tables: Mapping[str, str],
    ranks: Sequence[str],
    sidecars: Sequence[str],
    figures: Sequence[str],
    asked: PageOptions,
    html: str,
    results: Path,
) -> None:
    """Read the tables (by name, their paths), sidecars of the unprofiled runs and figures; write the page.

    results: folder of the cells' files, beside which the page is written.

    asked: `tools`; `timelines`, paths of typical steps' timelines; `lines`, paths of tables of source lines;
    `operations`, paths of the tables of several processes; `lacking`, selected cells that cannot be made; and
    `perfetto`, as for the page.
    """
    read = {name: zoo_tables.read_table(name, path) for name, path in tables.items()} | {"ranks": read_ranks(ranks)}
    read["inside"] = inside_kernels.read_sentences(asked["lines"])
    read |= process_section.read_tables(asked["operations"])
    runs = {tuple(cell_of(path).values()): path for path in sidecars}
    told = [read_facts(runs[row.model, row.phase], RUN_FACTS) for row in read["cells"].itertuples()]
    drawn = [read_figure(path, overview.all_on_cpu(read["cells"])) for path in figures]
    steps = ((path, cast("Timeline", read_json(path))) for path in asked["timelines"])
    typical = {tuple(cell_of(path).values()): step for path, step in steps if step}
    more = (asked["lacking"], typical, asked["perfetto"])
    page = render_page(read, told, drawn, asked["tools"], results, *more)
    Path(html).write_text(page, encoding="utf-8")


def render_page(
    tables: Mapping[str, pd.DataFrame],
    sidecars: "Sequence[Sidecar]",
    figures: Sequence[PageFigure],
    tools: Sequence[str],
    results: Path,
    missing: Sequence[Mapping[str, str]] = (),
    timelines: "Mapping[tuple[str, ...], Timeline]" = MappingProxyType({}),
    perfetto: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the page's HTML.

    Args:
        tables: TABLES and `ranks`, and what there is of OPTIONAL and `trials`, by name; sidecars: of the cells'
            unprofiled runs; figures: as the template takes them; tools: that were chosen; results: the folder that the
            cells' files are in; missing: model, phase and why of the cells that failed, or were not made, and `tool`
            where that of one did, and `part` and why of what is missing across them; timelines: of typical steps, by
            cell; perfetto: `address` of its page, and what to `type` so that it can be handed traces.
    """
    tables = {"verdicts": pd.DataFrame(columns=verdicts.COLUMNS), **tables}
    cells, promised = tables["cells"], savings.list_savings(tables)
    return _render_template(
        overview.all_on_cpu(cells),
        title="profzoo report",
        **comparison_section.comparison_context(tables),
        **overview.measurement_context(cells, sidecars, tools),
        **overview.cells_context(tables, promised, missing),
        **savings_section.make_first_section(promised, tables),
        **overview.agreement_context(tables["agreement"], tools),
        figures=[one for one in figures if not one["compares"]],
        compared_figures=[one for one in figures if one["compares"]],
        process_columns=list(PROCESS_COLUMNS),
        page_data=cell_data.page_data(
            tables.get("peaks"), perfetto, heading_hints.list_hints(overview.all_on_cpu(cells))["grid"]
        ),
        perfetto=perfetto,
        details=[
            {**describe_cell(row, tables, timelines, results), "script": _describe_script(sidecar)}
            for (_, row), sidecar in zip(
                cells.iterrows(), itertools.chain(sidecars, itertools.repeat({})), strict=False
            )
        ],
    )


def _describe_script(sidecar: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the command of a script and what was taken for its steps; None for a model."""
    if "script" not in sidecar:
        return None
    return {"command": sidecar["cell"]["command"], "step": script_steps.describe_step(sidecar["script"])}


def write_comparison_page(tables: Mapping[str, str], figures: Sequence[str], html: str) -> None:
    """Read the tables (paths by name) and figures of a comparison, and write a page of the comparison alone."""
    read, drawn = (
        {name: zoo_tables.read_table(name, path) for name, path in tables.items()},
        [read_figure(path) for path in figures],
    )
    nothing: dict[str, list[Any]] = {"cells": [], "lacking": [], "partial": [], "parts": []}
    page = _render_template(
        False,
        title="profzoo comparison",
        **comparison_section.comparison_context(read),
        compared_figures=drawn,
        **nothing,
    )
    Path(html).write_text(page, encoding="utf-8")


def _render_template(all_on_cpu: bool, **given: Any) -> str:
    here = jinja2.FileSystemLoader(HERE, encoding="utf-8")
    environment = jinja2.Environment(loader=here, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"sentence": value_formats.make_sentence, "code": value_formats.mark_code}
    words: TemplateVariables = {
        "meanings": glossary.load_meanings(all_on_cpu),
        "glossary": glossary.load_groups(all_on_cpu),
    }
    words |= {"all_on_cpu": all_on_cpu, "titles": heading_hints.list_hints(all_on_cpu)}
    files = {"style": _read_assets("css"), "script": _read_assets("js")}
    words["policy"] = POLICY.format(base64.b64encode(hashlib.sha256(files["script"].encode()).digest()).decode())
    return environment.get_template(TEMPLATE).render(given | words | files)


def _read_assets(ending: str) -> Markup:
    """Return the joined content of all files in assets/ with this ending, in order of their names."""
    paths = sorted((HERE / "assets").glob(f"*.{ending}"))
    return Markup("\n".join(path.read_text(encoding="utf-8") for path in paths))


def read_figure(path: str, on_cpu: bool = False) -> PageFigure:
    """Return a figure's name, title, inlined SVG and caption; on_cpu: whether all cells ran on a CPU.

    Raises:
        DataError: profzoo did not draw the file, because it contains something that a browser would run or load.
    """
    name = Path(path).stem
    known = known_figures()[name]
    title, caption = known.said(on_cpu)
    try:
        svg = inline_svg.inline_figure(Path(path).read_text(encoding="utf-8"), name, f"{title}: {caption}")
    except (DataError, UnicodeDecodeError) as error:
        why = error if isinstance(error, DataError) else "is no SVG (it is not UTF-8)"
        raise DataError(f"{path} {why}, which no figure of profzoo does: remove it, and it is drawn again") from None
    return {"name": name, "title": title, "svg": Markup(svg), "caption": caption, "compares": known.compares}
