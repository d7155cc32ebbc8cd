"""extensions: what a folder outside the checkout brings is found, is an input, and is refused in one line."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from profzoo import extensions, figures, tools
from profzoo.cell import registry, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.records import import_graph
from profzoo.report import glossary
from profzoo.verdicts.rules import rule_types, rules
from profzoo.workflow import extension_checks

FIGURE = '"""A figure."""\n\nORDER = 500\nTITLE = "mine"\nINPUTS = ("cells",)\nNEEDS = ()\nCAPTION = "Mine."\n'
RULES = """\
causes:
  slow_copy: {match: slow_copy}
rules:
  - verdict: slow copies
    of: kernels
    share: slow_copy
    at_least: 0.1
    cured: 1
    launches: kept
    advice:
      - next: copy less
    source: the test
"""
WORDS = 'mine:\n  - {word: slow copies, means: "Copies that are slow."}\n'
TOOL = """\
order: 90
does: [sample]
properties:
  window: {type: integer, default: 2}
  time_limit: {type: string, default: 1h}
"""
MODEL = '''"""A model."""

from . import sizes

WORKLOADS = {"trimmed": {"inference": {"batch": 2}}}
def build(shape): ...
def sample(shape, batch): ...
'''
CONTENT = {
    "figures/mine.py": FIGURE,
    "rules.yaml": RULES,
    "words.yaml": WORDS,
    "sets.yaml": "mine: {sections: [LaunchStats]}\n",
    "tools/perf/schema.yaml": TOOL,
    "tools/perf/command.py": '"""Nothing differs."""\n',
    "tools/perf/activity.py": '"""A table."""\n\nTABLE = None\n',
    "models/tiny.py": MODEL,
    "models/sizes.py": '"""Sizes."""\n',
}
Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Makes an extension; none is in use once the test is over."""
    monkeypatch.setenv(extensions.PASSED, "[]")

    def write(name: str = "my-lab", **content: str) -> Path:
        for path, text in (content or CONTENT).items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        return tmp_path / name

    return write


def refused(*folders: Path) -> str:
    with pytest.raises(ConfigError) as error:
        extensions.use(list(map(str, folders)))
        extension_checks.check_extensions()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def mistaken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The shipped rules with a share that does not exist, in a file of their own, in place of the shipped file."""
    path = tmp_path / "rules.yaml"
    path.write_text(rules.RULES_FILE.read_text().replace("share: optimizer_loop\n", "share: optimizer_lop\n"))
    for module in (rules, rule_types):
        monkeypatch.setattr(module, "RULES_FILE", path)
    rules._loaded.cache_clear()
    yield path
    rules._loaded.cache_clear()


def test_a_mistake_in_the_shipped_rules_ends_a_run_before_it_starts(mistaken: Path) -> None:
    wrong = r"rule 'looped optimizer'\.share = 'optimizer_lop': did you mean 'optimizer_loop'\?"
    with pytest.raises(ConfigError, match=f"^{re.escape(str(mistaken))}: {wrong}$"):
        extension_checks.check_extensions()


def known() -> tuple[set[str], set[str], set[str], int]:
    """Figures, tools, models, and how many rules there are."""
    return (
        set(figures.all_figures()),
        set(tools.names()),
        set(registry.shipped_models()),
        len(rules.load_rules()["rules"]),
    )


def test_what_an_extension_brings_is_known_as_the_shipped_is(written: Written) -> None:
    shipped = known()
    folder = written()
    extensions.use(str(folder))
    extension_checks.check_extensions()
    brought = [now - before for now, before in zip(known()[:3], shipped[:3], strict=True)]
    assert brought == [{"mine"}, {"perf"}, {"tiny"}] and known()[3] == shipped[3] + 1
    assert figures.all_figures()["mine"].path == folder / "figures/mine.py"
    assert tools.commands()["perf"].wrap_command([], {}, 1) == []
    assert tools.names()[-1] == "perf" and "perf" in tools.that(tools.SAMPLE)
    assert rules.load_rules()["rules"][-1]["verdict"] == "slow copies"
    assert glossary.load_meanings()["slow copies"]["means"] == "Copies that are slow."
    config = configuration.normalise_config({"tool": "perf", "models": "tiny", "phases": "inference"})
    assert config["ncu"]["sets"]["mine"] == {"sections": ["LaunchStats"]} and config["perf"]["window"] == 2
    cell = settings.resolve_cell("tiny", "inference", "perf", config)
    assert "module=profzoo.extensions.my_lab.models.tiny" in settings.setting_words(cell)
    extensions.use()
    assert known() == shipped and "slow copies" not in glossary.load_meanings()
    assert "mine" not in configuration.normalise_config({})["ncu"]["sets"]


def test_its_files_are_inputs_of_what_goes_by_them(written: Written) -> None:
    before = import_graph.files_of("workflow/scripts/tabulate_verdicts.py", "workflow/scripts/write_report.py")
    folder = written()
    extensions.use([str(folder)])
    after = import_graph.files_of("workflow/scripts/tabulate_verdicts.py", "workflow/scripts/write_report.py")
    own = {path.relative_to(folder).as_posix() for path in set(after) - set(before)}
    assert own == {"rules.yaml", "words.yaml", "tools/perf/activity.py"}
    assert folder / "figures/mine.py" in import_graph.files_of(import_graph.place(folder / "figures/mine.py"))
    of_tiny, of_lstm = (set(registry.source_files(registry.find_model(name))) for name in ("tiny", "lstm"))
    assert of_tiny - of_lstm == {folder / "models/tiny.py", folder / "models/sizes.py"}


def test_its_modules_import_each_other_and_run(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    extensions.use(str(written()))
    found = importlib.import_module("profzoo.extensions.my_lab.models.tiny")
    assert found.sizes.__name__ == "profzoo.extensions.my_lab.models.sizes"
    assert extensions.inherited_variables() == {extensions.PASSED: os.environ[extensions.PASSED]}
    extensions.use()
    assert extensions.inherited_variables() == {} and extensions.module_name(Path("/x.py")) == ""


def test_packages_bring_extensions_by_name_and_by_entry_point(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written("lab_of_tests", **{"figures/mine.py": FIGURE, "__init__.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path))
    extensions.use(["lab_of_tests"])
    assert extensions.folders() == (folder,)
    point = metadata.EntryPoint("lab", "lab_of_tests", extensions.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == extensions.GROUP else [])
    extensions.use()
    assert extensions.folders() == (folder,) and "mine" in figures.all_figures()
    sys.modules.pop("lab_of_tests", None)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("figures/roofline.py", FIGURE, "the figure 'roofline' has the name of profzoo's own: give it another"),
        ("figures/bad.py", FIGURE.replace('CAPTION = "Mine."', ""), "CAPTION is none here"),
        ("figures/bad.py", FIGURE.replace("cells", "cels"), "INPUTS holds 'cels': did you mean 'cells'?"),
        ("figures/bad.py", FIGURE.replace("NEEDS = ()", 'NEEDS = ("nsyss",)'), "NEEDS holds 'nsyss': did you mean"),
        ("rules.yaml", RULES.replace("of: kernels", "of: kernals"), "rule 'slow copies'.of = 'kernals': did you mean"),
        ("rules.yaml", RULES.replace("slow copies", "memory-bound"), "the verdict 'memory-bound' has the name of prof"),
        ("rules.yaml", RULES.replace("slow_copy:", "tail:"), "the cause 'tail' has the name of profzoo's own"),
        ("rules.yaml", "rule: []\n", "rules.yaml.rule' (value []): did you mean 'rules'?"),
        ("words.yaml", "mine:\n  - {word: other, means: x}\n", "nothing explains the verdict 'slow copies'"),
        ("words.yaml", "mine:\n  - {word: launch-bound, means: x}\n", "the word 'launch-bound' has the name of"),
        ("sets.yaml", "full: {sections: [LaunchStats]}\n", "full"),
        ("sets.yaml", "mine: {sectons: [LaunchStats]}\n", "sectons' (value ['LaunchStats']): did you mean 'sections'?"),
        ("tools/perf/schema.yaml", TOOL.replace("window", "windows"), "'window' is missing"),
        ("tools/perf/command.py", "import no_such_module\n", "perf/command.py: ModuleNotFoundError: No module named"),
        ("models/lstm.py", MODEL, "the model 'lstm' has the name of profzoo's own"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line(written: Written, path: str, text: str, said: str) -> None:
    # Only files of its kind lie beside it, and the rules that words are about: to check these takes long.
    kinds = {path.partition("/")[0], *(["rules.yaml"] if path == "words.yaml" else [])}
    folder = written(**{name: one for name, one in CONTENT.items() if name.partition("/")[0] in kinds} | {path: text})
    line = refused(folder)
    assert said in line and str(folder) in line, line


def test_names_that_two_extensions_share_are_refused(written: Written) -> None:
    one = written("one", **{"figures/mine.py": FIGURE})
    two = written("two", **{"figures/mine.py": FIGURE})
    assert refused(one, two) == f"{two}/figures/mine.py: the figure 'mine' has the name of that of {one}/figures/mine.py: " \
        "give it another"  # fmt: skip
    other = written("deep/one", **{"figures/other.py": FIGURE})
    assert "are both called 'one': rename one folder" in refused(one, other)
