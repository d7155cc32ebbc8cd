"""extensions: what a folder outside the checkout brings is found, is an input, and is refused in one line."""

import importlib
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from profzoo import extension_checks, extensions, figures, import_graph, schema, tools
from profzoo.cell import registry, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.report import glossary
from profzoo.verdicts import rules

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
MODEL = (
    '''"""A model."""

from . import sizes

WORKLOADS = {"trimmed": {"inference": {"batch": sizes}}}
'''.replace("sizes}}}", "2}}}")
    + "\n\ndef build(shape): ...\n\n\ndef sample(shape, batch): ...\n"
)
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


def test_what_an_extension_brings_is_known_as_the_shipped_is(written: Written) -> None:
    shipped = (
        set(figures.all_figures()),
        set(tools.names()),
        set(registry.shipped_models()),
        len(rules.load_rules()["rules"]),
    )
    folder = written()
    extensions.use(str(folder))
    extension_checks.check_extensions()
    assert (
        set(figures.all_figures()) - shipped[0] == {"mine"}
        and figures.all_figures()["mine"].path == folder / "figures/mine.py"
    )
    assert set(tools.names()) - shipped[1] == {"perf"} and tools.commands()["perf"].wrap_command([], {}, 1) == []
    assert tools.names()[-1] == "perf" and "perf" in tools.that(tools.SAMPLE)
    assert set(registry.shipped_models()) - shipped[2] == {"tiny"}
    assert (
        rules.load_rules()["rules"][-1]["verdict"] == "slow copies"
        and len(rules.load_rules()["rules"]) == shipped[3] + 1
    )
    assert glossary.load_meanings()["slow copies"]["means"] == "Copies that are slow."
    config = configuration.normalise_config({"tool": "perf", "models": "tiny", "phases": "inference"})
    assert config["ncu"]["sets"]["mine"] == {"sections": ["LaunchStats"]} and config["perf"]["window"] == 2
    cell = settings.resolve_cell("tiny", "inference", "perf", config)
    assert "module=profzoo.extensions.my_lab.models.tiny" in settings.setting_words(cell)
    extensions.use()
    assert (
        set(figures.all_figures()),
        set(tools.names()),
        set(registry.shipped_models()),
        len(rules.load_rules()["rules"]),
    ) == shipped
    assert (
        "mine" not in configuration.normalise_config({})["ncu"]["sets"]
        and "slow copies" not in glossary.load_meanings()
    )


def test_its_files_are_inputs_of_what_goes_by_them(written: Written) -> None:
    before = import_graph.files_of("workflow/scripts/tabulate_verdicts.py", "workflow/scripts/write_report.py")
    folder = written()
    extensions.use([str(folder)])
    after = import_graph.files_of("workflow/scripts/tabulate_verdicts.py", "workflow/scripts/write_report.py")
    own = {path.relative_to(folder).as_posix() for path in set(after) - set(before)}
    assert own == {"rules.yaml", "words.yaml", "tools/perf/activity.py"}
    assert folder / "figures/mine.py" in import_graph.files_of(import_graph.place(folder / "figures/mine.py"))
    of_model = set(registry.source_files(registry.find_model("tiny")))
    assert of_model - set(registry.source_files(registry.find_model("lstm"))) == {
        folder / "models/tiny.py",
        folder / "models/sizes.py",
    }


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
        ("figures/bad.py", "def (", "'bad' is no Python"),
        ("figures/bad.py", FIGURE.replace('CAPTION = "Mine."', ""), "CAPTION is none here"),
        ("figures/bad.py", FIGURE.replace("cells", "cels"), "INPUTS holds 'cels': did you mean 'cells'?"),
        (
            "figures/bad.py",
            FIGURE.replace("NEEDS = ()", 'NEEDS = ("nsyss",)'),
            "NEEDS holds 'nsyss': did you mean 'nsys'?",
        ),
        ("rules.yaml", RULES.replace("of: kernels", "of: kernals"), "rule 'slow copies'.of = 'kernals': did you mean"),
        (
            "rules.yaml",
            RULES.replace("slow copies", "memory-bound"),
            "the verdict 'memory-bound' has the name of profzoo's",
        ),
        ("rules.yaml", RULES.replace("slow_copy:", "tail:"), "the cause 'tail' has the name of profzoo's own"),
        ("rules.yaml", RULES.replace("match: slow", "match: (slow"), "is no regular expression"),
        ("rules.yaml", "rule: []\n", "rules.yaml.rule' (value []): did you mean 'rules'?"),
        ("rules.yaml", "- 1\n", "is a list, not object"),
        ("words.yaml", "mine:\n  - {word: other, means: x}\n", "nothing explains the verdict 'slow copies'"),
        ("words.yaml", "mine:\n  - {word: launch-bound, means: x}\n", "the word 'launch-bound' has the name of"),
        ("words.yaml", "mine:\n  - {wrod: x, means: x}\n", "words.yaml.mine.0: 'word' is missing"),
        ("sets.yaml", "full: {sections: [LaunchStats]}\n", "the section set"),
        ("sets.yaml", "mine: {sectons: [LaunchStats]}\n", "sectons' (value ['LaunchStats']): did you mean 'sections'?"),
        ("tools/nsys/schema.yaml", TOOL, "the tool 'nsys' has the name of profzoo's own"),
        ("tools/models/schema.yaml", TOOL, "the tool 'models' has the name of profzoo's own"),
        ("tools/perf/schema.yaml", "order: 1\n", "'properties' is missing"),
        ("tools/perf/schema.yaml", TOOL.replace("window", "windows"), "'window' is missing"),
        ("tools/perf/command.py", "import no_such_module\n", "perf/command.py: ModuleNotFoundError: No module named"),
        ("models/lstm.py", MODEL, "the model 'lstm' has the name of profzoo's own"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line(written: Written, path: str, text: str, said: str) -> None:
    folder = written(**{**CONTENT, path: text})
    line = refused(folder)
    assert said in line or (path == "sets.yaml" and "full" in text), line
    assert str(folder) in line


def test_names_that_two_extensions_share_are_refused(written: Written) -> None:
    one = written("one", **{"figures/mine.py": FIGURE})
    two = written("two", **{"figures/mine.py": FIGURE})
    assert refused(one, two) == f"{two}/figures/mine.py: the figure 'mine' has the name of that of {one}/figures/mine.py: " \
        "give it another"  # fmt: skip
    other = written("deep/one", **{"figures/other.py": FIGURE})
    assert "are both called 'one': rename one folder" in refused(one, other)


def test_what_is_no_extension_is_refused(written: Written, tmp_path: Path) -> None:
    assert "there is no such folder or package" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "holds nothing of an extension: put in any of figures/*.py" in refused(tmp_path / "empty")
    assert "cannot be imported: begin its name with a letter" in refused(written("1lab", **{"sets.yaml": "a: {}\n"}))
    with pytest.raises(ConfigError, match="is no list of names"):
        extensions.use({"a": 1})


def test_the_schema_takes_the_key() -> None:
    assert schema.load_schema()["properties"]["extensions"]["default"] == []
    assert configuration.normalise_config({"extensions": "one,two"})["extensions"] == ["one", "two"]
