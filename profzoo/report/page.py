"""Write the report: one HTML page with inlined figures, which opens offline."""

import base64
import hashlib
import html
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, cast
from xml.etree import ElementTree

import jinja2
import pandas as pd
from markupsafe import Markup

from profzoo.catalog import csv_files
from profzoo.cell import sidecar_files
from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.figures import all_figures as known_figures
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json
from profzoo.json_types import TemplateVariables
from profzoo.report import (
    cell_data,
    cell_section,
    comparison_section,
    glossary,
    overview,
    packed_blocks,
    savings,
    timeline_data,
    value_formats,
)
from profzoo.report.cell_section import describe_cell
from profzoo.report.value_formats import PROCESS_COLUMNS
from profzoo.tables.across_cells import read_imbalance as read_ranks
from profzoo.tables.cell_tables import cell_of
from profzoo.tools.ncu import source_lines
from profzoo.tools.ncu.quantities import CHARTS
from profzoo.tools.ncu.source_lines import describe_kernels
from profzoo.verdicts import verdict as verdicts

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar
    from profzoo.tools.nsys.pictures.median_step import Timeline


# Inline a figure's SVG into a page: unique ids, a description for screen readers, and theme colours.

# Sanitise an SVG for a page: refuse everything that a browser would run, load or open.

# Elements of figures. Others run something (script), contain any HTML (foreignObject), change attributes later
# (animate, set) or lead elsewhere (a).
ALLOWED_ELEMENTS = frozenset((
    "svg", "g", "defs", "style", "title", "desc", "path", "use", "text", "tspan", "clipPath", "rect", "circle", "line",
    "ellipse", "polyline", "polygon", "image", "pattern", "linearGradient", "radialGradient", "stop", "mask", "marker",
    "symbol",
))  # fmt: skip
TEXTS = frozenset(("title", "desc", "style"))
NAMESPACES = {
    "": "",
    "http://www.w3.org/2000/svg": "",
    "http://www.w3.org/1999/xlink": "",
    "http://www.w3.org/XML/1998/namespace": "xml:",
}
# A reference within the figure, or an embedded bitmap.
PLACE, PICTURE = re.compile(r"#[\w.:-]+"), re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
# Parts of styles, and of attributes with the same effect, that load something, or that could hide such a part.
LOADS = re.compile(r"url\((?!#[\w.:-]+\))|(?:src|image)\(|image-set|javascript:|//|@|\\", re.IGNORECASE)
# The only permitted style sheet, because a figure's style would apply to the whole page: line joins and line caps.
STYLE = re.compile(r"\s*(\*\s*\{[\w\s:;.-]*\}\s*)*")
# Characters that XML cannot represent, for example in the name of a kernel.
UNSAYABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def sanitise_svg(svg: str) -> str:
    """Parse the SVG and write it again without metadata, so that browsers read exactly what was checked.

    Raises:
        DataError: the text is not SVG, or contains something that no figure does; the message says what.

    >>> sanitise_svg('<?xml version="1.0"?><svg><!-- a --><metadata/><g id="b"><title>1 &lt; 2</title></g></svg>')
    '<svg><g id="b"><title>1 &lt; 2</title></g></svg>'
    >>> sanitise_svg('<svg onload="alert(1)"/>')
    Traceback (most recent call last):
    profzoo.errors.DataError: holds onload="alert(1)"
    """
    if "<!ENTITY" in svg:
        raise DataError("holds <!ENTITY")
    try:
        root = ElementTree.fromstring(UNSAYABLE.sub("", svg))
    except ElementTree.ParseError as error:
        raise DataError(f"is not SVG ({error})") from None
    if _local_name(root.tag) != "svg":
        raise DataError(f"is not SVG (it is <{_local_name(root.tag)}>)")
    for element in root.iter():
        for child in [one for one in element if _local_name(one.tag) == "metadata"]:
            element.remove(child)
    for element in root.iter():
        _check_element(element)
    try:
        return ElementTree.tostring(root, encoding="unicode").strip()
    except RecursionError:
        raise DataError("holds elements within elements, hundreds deep") from None


def _check_element(element: ElementTree.Element) -> None:
    """Reduce the names of an element and its attributes to local names.

    Raises:
        DataError: the element or an attribute is not permitted.
    """
    element.tag = name = _local_name(element.tag)
    if name not in ALLOWED_ELEMENTS or (name in TEXTS and len(element)):
        raise DataError(f"holds <{name}>")
    if name == "style" and not STYLE.fullmatch(element.text or ""):
        raise DataError("holds a <style> that sets more than stroke-linejoin and stroke-linecap")
    attributes = {_local_name(key): value for key, value in element.attrib.items()}
    for key, value in attributes.items():
        # In a page names mean the same in letters of either case, in an SVG they do not.
        runs = key.lower().startswith("on") or (key.lower() in ("href", "src") and key != "href")
        if runs or (key != "href" and LOADS.search(value)):
            raise DataError(f'holds {key}="{value[:80]}"')
        if key == "href" and not PLACE.fullmatch(value) and not (name == "image" and PICTURE.fullmatch(value)):
            raise DataError(f'holds {key}="{value[:80]}"')
    element.attrib.clear()
    element.attrib.update(attributes)


def _local_name(name: str) -> str:
    """Return the name of an element or attribute, without its namespace if figures use this namespace.

    >>> _local_name("{http://www.w3.org/1999/xlink}href"), _local_name("{http://www.w3.org/1999/xhtml}script")
    ('href', '{http://www.w3.org/1999/xhtml}script')
    """
    space, _, local = name.removeprefix("{").rpartition("}")
    return NAMESPACES[space] + local if space in NAMESPACES else name


# Colours in which matplotlib and seaborn draw text, lines and background, with the page's names for them.
THEME_COLOURS = {"#262626": "--ink", "#333333": "--ink", "#444444": "--ink", "#666666": "--soft", "#cccccc": "--line"}
PAPER = re.compile(r"(<(?:path|g)\b[^>]*?style=\"[^\"]*?\b(?:fill|stroke): )#ffffff")
INK = re.compile(rf"(\b(?:fill|stroke): )({'|'.join(THEME_COLOURS)})\b")
VIEW_BOX = re.compile(r'<svg\b[^>]*?\sviewBox="[\d.-]+ [\d.-]+ ([\d.]+) ([\d.]+)"')
# Marks keep the colours of the palette; these elements get the colours of the theme.
ELEMENTS = re.compile(r"<(?:text|g|use)\b[^>]*>|<path\b[^>]*fill: none[^>]*>")


def inline_figure(svg: str, name: str, told: str) -> str:
    """Return the SVG element for a page; name: name of the figure; told: its description for screen readers.

    Raises:
        DataError: the SVG contains something that a browser would run or load.

    >>> inline_figure('<!-- by --><svg width="9pt"><g id="a"><text style="fill: #262626">1</text></g></svg>', "n", "")
    '<svg role="img" aria-label=""><g id="n-a"><text style="fill: var(--ink)">1</text></g></svg>'
    """
    # Several SVGs in one page share one space of ids.
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", sanitise_svg(svg))
    for _ in range(2):
        # A style may hold both a fill and a stroke.
        svg = PAPER.sub(r"\g<1>var(--paper)", svg)
    svg = ELEMENTS.sub(lambda tag: INK.sub(lambda style: f"{style[1]}var({THEME_COLOURS[style[2]]})", tag[0]), svg)
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{html.escape(told)}"', svg, count=1)


# Reads the tables of source lines that there are, and says for the page where kernels wait and spill.
COLUMNS = ("model", "phase", "says")


def read_sentences(paths: Iterable[str]) -> pd.DataFrame:
    """Return COLUMNS: a sentence on each of the most expensive kernels; paths: tables of source lines of cells.

    Raises:
        DataError: a table is damaged.
    """
    rows = [
        {**cell_of(path), "says": says}
        for path in paths
        for says in describe_kernels(reading.read(path, source_lines.TABLE))
    ]
    # Several section sets may tell the same.
    return pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(ignore_index=True)


TEMPLATE = "page.html.j2"
FILES = ("*.html.j2", "assets/*.css", "assets/*.js")
HERE = Path(__file__).parent
TABLES = ("cells", "agreement", "activity", "steps")
# Optional tables: of a comparison, of predicted gains, and of the data from which cells are drawn.
COMPARISON_TABLES = ("compare", "compare_parts", "compare_counters")
OF_VERDICTS = ("verdicts", "plans", "waits", "repetition")
OPTIONAL_TABLES = (
    *COMPARISON_TABLES, *OF_VERDICTS, *CHARTS, "latency", "tokens", "kernels", "ranges", "roofline", "layers", "peaks",
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
    # Width and height, so that the page has room for it before it is drawn: `600 / 400`.
    shape: str
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
    # Paths of the tables of memory, and of collective operations and skew of cells on several GPUs.
    of_cells: Sequence[str]
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
    `of_cells`, paths of the tables of single cells; `lacking`, selected cells that cannot be made; and
    `perfetto`, as for the page.
    """
    read = {name: csv_files.read_table(name, path) for name, path in tables.items()} | {"ranks": read_ranks(ranks)}
    read["inside"] = read_sentences(asked["lines"])
    read |= cell_section.read_tables(asked["of_cells"])
    runs = {tuple(cell_of(path).values()): path for path in sidecars}
    told = [read_facts(runs[row.model, row.phase], RUN_FACTS) for row in read["cells"].itertuples()]
    kinds = overview.all_on_cpu(read["cells"]), bool(overview.tools_of_imports(read["cells"]))
    drawn = [read_figure(path, *kinds) for path in figures]
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
    cells, promised = tables["cells"], savings.list_savings(tables, tools)
    timelines, on_cpu = timeline_data.thin_timelines(timelines), overview.all_on_cpu(cells)
    return _render_template(
        on_cpu,
        title="profzoo report",
        **comparison_section.comparison_context(tables),
        **overview.measurement_context(cells, sidecars, tools),
        **overview.cells_context(tables, promised, missing),
        **savings.make_first_section(promised, tables),
        **overview.agreement_context(overview.drop_single_tools(tables["agreement"], cells), tools, cells),
        figures=[one for one in figures if not one["compares"]],
        compared_figures=[one for one in figures if one["compares"]],
        process_columns=list(PROCESS_COLUMNS),
        page_data=cell_data.page_data(tables.get("peaks"), perfetto, overview.list_hints(on_cpu)["grid"]),
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
    return {"command": sidecar["cell"]["command"], "step": sidecar_files.describe_step(sidecar["script"])}


def write_comparison_page(tables: Mapping[str, str], figures: Sequence[str], html: str) -> None:
    """Read the tables (paths by name) and figures of a comparison, and write a page of the comparison alone."""
    read = {name: csv_files.read_table(name, path) for name, path in tables.items()}
    drawn = [read_figure(path) for path in figures]
    nothing: dict[str, list[Any]] = {"cells": [], "lacking": [], "partial": [], "parts": []}
    known = comparison_section.comparison_context(read)
    page = _render_template(False, title="profzoo comparison", **known, compared_figures=drawn, **nothing)
    Path(html).write_text(page, encoding="utf-8")


def _render_template(all_on_cpu: bool, **given: Any) -> str:
    here = jinja2.FileSystemLoader(HERE, encoding="utf-8")
    environment = jinja2.Environment(loader=here, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"sentence": value_formats.make_sentence, "code": value_formats.mark_code}
    environment.filters |= {"packed_data": packed_blocks.pack_data, "packed_drawn": packed_blocks.pack_drawn}
    words: TemplateVariables = {"all_on_cpu": all_on_cpu, "titles": overview.list_hints(all_on_cpu)}
    words |= {"meanings": glossary.load_meanings(all_on_cpu), "glossary": glossary.load_groups(all_on_cpu)}
    files = {"style": _read_assets("css"), "script": _read_assets("js")}
    words["policy"] = POLICY.format(base64.b64encode(hashlib.sha256(files["script"].encode()).digest()).decode())
    return environment.get_template(TEMPLATE).render(given | words | files)


def _read_assets(ending: str) -> Markup:
    """Return the joined content of all files in assets/ with this ending, in order of their names."""
    paths = sorted((HERE / "assets").glob(f"*.{ending}"))
    return Markup("\n".join(path.read_text(encoding="utf-8") for path in paths))


def read_figure(path: str, on_cpu: bool = False, imported: bool = False) -> PageFigure:
    """Return a figure's name, title, inlined SVG and caption.

    on_cpu, imported: whether all cells ran on a CPU, or were made elsewhere.

    Raises:
        DataError: profzoo did not draw the file, because it contains something that a browser would run or load.
    """
    name = Path(path).stem
    known = known_figures()[name]
    title, caption = known.said(on_cpu, imported)
    try:
        svg = inline_figure(Path(path).read_text(encoding="utf-8"), name, f"{title}: {caption}")
    except (DataError, UnicodeDecodeError) as error:
        why = error if isinstance(error, DataError) else "is not SVG (it is not UTF-8)"
        raise DataError(f"{path} {why}, which no figure of profzoo does: remove it, and it is drawn again") from None
    return {
        "name": name,
        "title": title,
        "svg": Markup(svg),
        "shape": _find_shape(svg),
        "caption": caption,
        "compares": known.compares,
    }


def _find_shape(svg: str) -> str:
    """Return the width and height of an SVG by its view box, as CSS writes a ratio; an empty text without a view box.

    >>> _find_shape('<svg viewBox="0 0 600.5 400"><g/></svg>')
    '600.5 / 400'
    """
    found = VIEW_BOX.match(svg)
    return f"{found[1]} / {found[2]}" if found else ""
