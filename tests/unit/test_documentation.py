"""The documentation: every page has its place, every link leads somewhere, and generated parts are up to date."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from profzoo.collect import failures
from profzoo.document import verdicts as document_verdicts
from profzoo.errors import ConfigError
from profzoo.records import import_graph
from profzoo.tools.ncu import costs

ROOT = import_graph.PROJECT
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config/README.md")
# Pages outside of docs/ that docs/site_hooks.py adds to the site.
ADDED = re.findall(r'^    "([^"]+)": "([^"]+\.md)",$', (DOCS / "site_hooks.py").read_text(), re.MULTILINE)
NAVIGATION = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
# Files that name pages.
NAMING = (".py", ".yaml", ".smk", ".txt", ".md", ".def", "")
FIRST = ("After this page ", "Here you find ")


def text(page: str) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", (ROOT / page).read_text())


def links(page: str) -> Iterator[tuple[str, str]]:
    """The file, from the project's root, and the anchor of each relative link of a page."""
    for found in LINK.finditer(text(page)):
        target = found[1] or found[2]
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield (os.path.normpath(PurePosixPath(page).parent / path) if path else page), anchor


def anchors(page: str) -> set[str]:
    """The anchors that GitHub and the site give the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_the_navigation_lists_every_page_once() -> None:
    own = [page.removeprefix("docs/") for page in PAGES]
    assert sorted(NAVIGATION) == sorted([*own, *(place for _, place in ADDED)])


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    lost = [
        f"{path}#{anchor}"
        for path, anchor in links(page)
        if not (ROOT / path).exists() or (anchor and path.endswith(".md") and anchor not in anchors(path))
    ]
    assert not lost


def test_pages_that_code_and_messages_name_are_there() -> None:
    folders = ("profzoo", "workflow", "models", "profiles", "containers", "config")
    files = [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file() and path.suffix in NAMING]
    files += [ROOT / name for name in ("Makefile", "pyproject.toml", "CHANGELOG.md", "CONTRIBUTING.md")]
    named = {(found, path.name) for path in files for found in re.findall(r"\bdocs/[\w/]+\.md\b", path.read_text())}
    assert not [(page, file) for page, file in named if not (ROOT / page).exists()]


def test_links_of_the_site_stay_in_the_site() -> None:
    outside = {path for page in PAGES for path, _ in links(page) if not path.startswith("docs/")}
    assert outside <= {source for source, _ in ADDED}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_the_first_line_says_what_the_reader_can_do_afterwards(page: str) -> None:
    heading, blank, first, *_ = (ROOT / page).read_text().splitlines()
    assert heading.startswith("# ") and not blank and first.startswith(FIRST), first


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_syntax_that_only_the_site_understands(page: str) -> None:
    assert not re.search(r"^(?:!!!|\?\?\?|===|> \[!)|\{[:#.][\w -]+\}$", text(page), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_lists_begin_after_an_empty_line(page: str) -> None:
    """Otherwise the site, unlike GitHub, makes them part of the paragraph."""
    lines = text(page).splitlines()
    item = re.compile(r"(?:- |\d+\. )")
    joined = [
        line
        for before, line in itertools.pairwise(lines)
        if item.match(line) and before.strip() and not item.match(before) and not before.startswith("  ")
    ]
    assert not joined


def test_the_page_of_verdicts_is_that_of_the_rules(tmp_path: Path) -> None:
    document_verdicts.main(tmp_path / "verdicts.md")
    assert (tmp_path / "verdicts.md").read_text() == (DOCS / "guides/verdicts.md").read_text()


def test_a_verdict_whose_evidence_is_missing_is_named() -> None:
    rule = {"verdict": "novel", "of": "step", "share": "copy", "at_least": 0.1, "cured": 1, "advice": [], "source": "-"}
    with pytest.raises(ConfigError, match="dropped clocks is missing: say under its group how it is found"):
        document_verdicts.write_verdicts_page([], [rule], {"novel": "New."})
    group = {
        "group": "All",
        "needs": "nothing",
        "verdicts": {"old": {"told": "Never."}, "dropped clocks": {"told": "."}},
    }
    with pytest.raises(ConfigError, match="old is not a verdict"):
        document_verdicts.write_verdicts_page([group], [], {"old": "Old."})


def test_every_known_cause_of_failures_is_on_the_page_of_messages() -> None:
    page = (DOCS / "reference/errors.md").read_text().replace("`", "")
    lost = [cure for _, cure in failures.known_patterns() if cure.replace("`", "") not in page]
    assert not lost


def test_every_section_of_ncu_is_explained_with_its_cost() -> None:
    page = (DOCS / "how/kernels.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    told = {name: row for row in rows for name in row[0].split(", ")}
    for name, price in costs.load_costs()["sections"].items():
        assert name in told, name
        if name == told[name][0]:
            assert told[name][-2:] == [str(price["passes"]), f"{price['seconds']:.3f}"], name


def test_the_tour_speaks_of_times_and_factors_that_its_outputs_have() -> None:
    text = (import_graph.PROJECT / "docs/tour.md").read_text()
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    told = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"\b(\d[\d.,]* (?:ms|µs)|\d+\.\d+) ", told.replace("\n", " ")))
    assert len(named) >= 3 and [number for number in sorted(named) if number not in shown] == []
