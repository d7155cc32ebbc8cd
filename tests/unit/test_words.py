"""The words that users read: no dialect of this house, and everything on page and terminal that is a term is explained."""

import ast
import re
from pathlib import Path

from profzoo import __main__ as command_line
from profzoo import formatting
from profzoo.compare import numerics
from profzoo.report import glossary
from profzoo.terminal import results_status, run_end, run_plan
from profzoo.terminal.run_plan import Progress
from profzoo.tools import names
from profzoo.verdicts.rules import rules

ROOT = Path(__file__).parents[2]
# Phrases of earlier versions that strangers did not understand.
DIALECT = re.compile(
    r"measures? nothing|ha(?:d|ve) the CPU|held back by|\bto win\b|time a step|launches a step|\d [mµn]?s a step|x 0\.|× 0\.|would go\b|"
    r"could save|not scored|numbers (?:same|undecided)|as (?:it|\w+) failed|somebody|what there is|is made of what|"
    r"\bof which it is\b|\bper cent\b|not there yet|none of them a measurement"
)
# Code that runs in measured processes stays as it is, because every change of it makes all results stale.
MEASURED = {"harness", "script_harness"}


def user_texts() -> dict[str, list[str]]:
    """Return the texts that users may read, by file: strings of the package without docstrings, and files of words."""
    found = {}
    for path in (ROOT / "profzoo").rglob("*.py"):
        if not MEASURED & set(path.relative_to(ROOT).parts):
            text = path.read_text()
            # To parse all files takes seconds. Strings that are joined over lines count as one.
            suspect = DIALECT.search(re.sub(r'"\s*\n\s*[rbf]?"', "", text))
            found[str(path.relative_to(ROOT))] = [*_strings(ast.parse(text))] if suspect else []
    others = [*(ROOT / "profzoo" / "report").glob("*.j2"), *(ROOT / "profzoo" / "report" / "assets").glob("*.js")]
    for path in (*others, glossary.HERE / glossary.FILES[0], ROOT / "workflow" / "help.txt"):
        found[str(path.relative_to(ROOT))] = path.read_text().splitlines()
    return found


def _strings(tree: ast.Module) -> list[str]:
    spoken = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [str(node.value) for node in constants if id(node) not in spoken and " " in str(node.value)]


def test_no_text_for_users_is_in_dialect() -> None:
    for said in ("unet train  x 0.774", "what of a step would go", "21 jobs measure nothing", "time a step"):
        assert DIALECT.search(said)
    texts = user_texts()
    assert len(texts) > 300 and len(texts[f"profzoo/report/{glossary.FILES[0]}"]) > 50
    assert {path: text for path, mine in texts.items() for text in mine if DIALECT.search(text)} == {}


def test_every_verdict_and_its_terms_are_in_the_page_glossary() -> None:
    meanings = glossary.load_meanings()
    assert {rule["verdict"] for rule in rules.load_rules()["rules"]} - set(meanings) == set()
    # A page of cells on a CPU explains the verdicts on these.
    on_cpu = glossary.load_meanings(on_cpu=True)
    assert {rule["verdict"] for rule in rules.load_rules()["rules"] if rule["of"] == "cpu"} - set(on_cpu) == set()


def terms() -> set[str]:
    """Return the terms of docs/reference/glossary.md; a row may explain several."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "reference" / "glossary.md").read_text(), re.MULTILINE)
    return {term for row in rows for term in row.split(", ")}


def test_the_glossary_has_the_names_of_measurements_and_the_precisions() -> None:
    measured = {name for name, _ in run_plan.MEASURING.values()} - set(names())
    # Some are named by their plural.
    plurals = ("peaks", "trials", "links")
    assert {name.removesuffix("s") if name in plurals else name for name in measured} - terms() == set()
    assert {"full precision", "double precision", "reduced precision", "numerics", "gain", "verdict", "plan"} <= terms()


def test_states_and_results_are_words_of_their_pages() -> None:
    status = (ROOT / "docs" / "reference" / "terminal.md").read_text()
    labels = re.findall(r'\((?:"" if place else )?"([a-z]+)", (?!None)', Path(run_end.__file__).read_text())
    assert set(labels) >= {"failed", "new", "gains", "differ", "ended", "report"}
    assert all(len(label) < formatting.INDENT for label in labels)
    assert run_end.format_run_end(Progress({}, {}), 1, [], 80, False) == []
    states = [*results_status.STATES.values(), results_status.FOREIGN, results_status.WAITING]
    assert [state for state in states if f"| {state}" not in status] == []
    glossary_lines = (ROOT / "docs" / "reference" / "glossary.md").read_text().splitlines()
    row = next(line for line in glossary_lines if line.startswith("| numerics"))
    assert all(word in row for word in (numerics.SAME, numerics.WITHIN, numerics.DIFFERENT, numerics.UNDECIDED))


def test_messages_name_commands_that_there_are() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "profzoo").rglob("*.py"))]
    named = {word for text in texts for word in re.findall(r"(?:`|python -m )profzoo ([a-z]+)\b", text)}
    assert {"advise", "session"} <= named <= {*command_line.COMMANDS}, named
