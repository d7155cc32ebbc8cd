"""Prints how large each feature of profzoo is, and the whole beside its budget: python -m tests.tools.size

features.yaml lists each feature with its modules, tests and pages, and with what a user loses without it. They are
named by patterns of paths; a folder stands for all files below it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from profzoo.cell import schema
from profzoo.io import strict_yaml
from profzoo.records import import_graph

FILE = "features.yaml"
# All modules, tests and pages there are, which features divide among them.
MODULES, TESTS, PAGES = ["profzoo/**/*.py"], ["tests/**/*.py"], ["README.md", "docs/**/*.md"]


class Feature(TypedDict):
    """Patterns of a feature's modules, tests and pages, and what a user loses without it."""

    modules: list[str]
    tests: NotRequired[list[str]]
    pages: NotRequired[list[str]]
    lost: str


class Features(TypedDict):
    """The content of features.yaml; budget: what adds up to the largest total of each size, each with its reason."""

    budget: list[dict[str, Any]]
    features: dict[str, Feature]


@dataclass(frozen=True)
class Size:
    """Numbers of modules and of their lines, lines of tests, and words of pages."""

    modules: int
    lines: int
    test_lines: int
    words: int


SIZES = tuple(field.name for field in fields(Size))
TEXTS: Mapping[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
FEATURE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["modules", "lost"],
    "properties": {"modules": TEXTS, "tests": TEXTS, "pages": TEXTS, "lost": {"type": "string"}},
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["budget", "features"],
    "properties": {
        "budget": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["why"],
                "properties": {**{size: {"type": "integer"} for size in SIZES}, "why": {"type": "string"}},
            },
        },
        "features": {"type": "object", "additionalProperties": FEATURE},
    },
}


def load_features(root: Path) -> Features:
    """Return the content of the project's features.yaml.

    Raises:
        ConfigError: the file has another form.
    """
    content: Features = strict_yaml.load_yaml(root / FILE)
    schema.check_value(content, SCHEMA, FILE)
    return content


def find_files(root: Path, patterns: Sequence[str]) -> set[Path]:
    """Return the files that match any of the patterns, and all files below folders that do."""
    found = {path for pattern in patterns for path in root.glob(pattern)}
    below = {path for folder in found if folder.is_dir() for path in folder.rglob("*")}
    return {path for path in found | below if path.is_file()}


def measure(root: Path, modules: Sequence[str], tests: Sequence[str], pages: Sequence[str]) -> Size:
    """Return the size of the modules, tests and pages that these patterns name."""
    code, tested, told = (
        [path.read_text() for path in find_files(root, own) & find_files(root, known)]
        for own, known in ((modules, MODULES), (tests, TESTS), (pages, PAGES))
    )
    lines, test_lines = (sum(text.count("\n") for text in texts) for texts in (code, tested))
    return Size(len(code), lines, test_lines, sum(len(text.split()) for text in told))


def add_up_budget(content: Features) -> Size:
    """Return the largest total of each size."""
    return Size(**{size: sum(entry.get(size, 0) for entry in content["budget"]) for size in SIZES})


def find_faults(root: Path) -> Iterator[str]:
    """Yield what is wrong: totals above the budget, modules not in exactly one feature, and patterns of no file."""
    content = load_features(root)
    budget, features = vars(add_up_budget(content)), content["features"]
    for name, size in vars(measure(root, MODULES, TESTS, PAGES)).items():
        if size > budget[name]:
            yield f"{name}: {size:,}, and the budget is {budget[name]:,}: make something smaller, or say why in {FILE}"
    held = {name: find_files(root, feature["modules"]) for name, feature in features.items()}
    for path in sorted(find_files(root, MODULES).difference(*held.values())):
        yield f"{path.relative_to(root)} belongs to no feature of {FILE}"
    for one, other in combinations(features, 2):
        for path in sorted(held[one] & held[other]):
            yield f"{path.relative_to(root)} belongs to two features: {one}, {other}"
    for name, feature in features.items():
        for pattern in (*feature["modules"], *feature.get("tests", ()), *feature.get("pages", ())):
            if not find_files(root, [pattern]):
                yield f"{name}: there is no file {pattern}"


def describe(root: Path) -> Iterator[str]:
    """Yield the lines of the table of sizes: a feature each, then all that there is, and the budget."""
    content = load_features(root)
    yield "".join(["feature".ljust(18), *(name.replace("_", " ").rjust(12) for name in SIZES), "  lost without it"])
    for name, feature in content["features"].items():
        size = measure(root, feature["modules"], feature.get("tests", ()), feature.get("pages", ()))
        yield f"{_row(name, size)}  {feature['lost']}"
    yield _row("all", measure(root, MODULES, TESTS, PAGES))
    yield _row("budget", add_up_budget(content))


def _row(name: str, size: Size) -> str:
    return "".join([name.ljust(18), *(f"{number:12,}" for number in vars(size).values())])


def main() -> None:
    """Print the table, and what is wrong."""
    print(*describe(import_graph.PROJECT), *find_faults(import_graph.PROJECT), sep="\n")


if __name__ == "__main__":
    main()
