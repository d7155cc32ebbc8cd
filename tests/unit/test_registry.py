"""harness/registry: what models declare, read without importing them; every unusable file named."""

from pathlib import Path

import pytest

from models.harness import registry, settings
from workflow.scripts.lib import config
from workflow.scripts.lib.schema import ConfigError

GOOD = {
    "GROUPS": "('own',)",
    "SOURCE": "'here'",
    "PARAMETERS": "1",
    "SHAPE": "{'size': 3}",
    "WORKLOADS": "{'trimmed': {'inference': {'batch': 2}}}",
}
DEFINED = "from somewhere import sample\ndef build(shape): ..."


def write(path: Path, **changes: str | None) -> Path:
    """A model's file that only declares; None leaves a declaration out."""
    declared = {**GOOD, **changes}
    path.write_text(
        "\n".join([*(f"{name} = {value}" for name, value in declared.items() if value is not None), DEFINED])
    )
    return path


@pytest.mark.parametrize("name", sorted(registry.zoo()))
def test_the_zoo_declares_both_workloads_and_its_source(name: str) -> None:
    model = registry.zoo()[name]
    assert set(model.workloads) == {"trimmed", "reference"} and model.groups and model.source
    for workload in model.workloads.values():
        assert all(workload[phase]["batch"] >= 1 for phase in settings.PHASES)


def test_annotated_declarations_count(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", PARAMETERS=None)
    path.write_text(path.read_text() + "\nPARAMETERS: int = 7\nimport does_not_exist\n")
    assert registry.read(path, "m", "m").parameters == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"WORKLOADS": None}, "does not declare WORKLOADS, such as"),
        ({"PARAMETERS": "2 * x"}, "PARAMETERS must be a literal"),
    ],
)
def test_declarations_that_are_missing(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        registry.read(write(tmp_path / "m.py", **changes), "m", "m")


def test_only_workloads_and_two_functions_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", **dict.fromkeys(set(GOOD) - {"WORKLOADS"}))
    model = registry.read(path, "m", "m")
    assert (model.groups, model.source, model.parameters, model.shape) == (("own",), "", None, {})
    path.write_text(path.read_text().replace(DEFINED, "def build(): ..."))
    with pytest.raises(ConfigError, match="'m' does not define sample; the README"):
        registry.read(path, "m", "m")


def test_a_file_that_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def (")
    with pytest.raises(ConfigError, match=r"m\.py"):
        registry.read(tmp_path / "m.py", "m", "m")


@pytest.mark.parametrize("module", ["no_such_module", "no_such.module", "models.no_such"])
def test_modules_that_are_not_there(module: str) -> None:
    with pytest.raises(ConfigError, match="cannot be found"):
        registry.find("mine", module)


@pytest.mark.parametrize(
    ("phase", "given"),
    [
        ("inference", {}),
        ("train", {}),
        ("inference", {"workload": "reference"}),
    ],
)
def test_a_model_of_one_phase_or_workload_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, given: dict
) -> None:
    write(tmp_path / "one_phase.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    checked = config.normalise({**given, "settings": {"mine": {"module": "one_phase"}}})
    if phase == "inference" and not given:
        assert settings.resolve("mine", phase, "time", checked)["batch"] == 2
    else:
        with pytest.raises(ConfigError, match="mine"):
            settings.resolve("mine", phase, "time", checked)


def test_sources_are_what_the_cell_is_measured_with() -> None:
    zoo, harness = registry.zoo(), registry.ZOO / "harness"
    shared = {harness / f"{name}.py" for name in ("data", "interface", "loop", "ranges", "recorders", "windows")}
    of_lstm, of_vgg = (set(registry.sources(zoo[name])) for name in ("lstm", "vgg19"))
    assert shared <= of_lstm & of_vgg
    assert {path for path in of_lstm if path.parent == registry.ZOO and path.name != "__init__.py"} == {
        zoo["lstm"].path
    }
    assert {zoo["vgg16"].path, harness / "tasks" / "classification.py"} <= of_vgg
    assert harness / "settings.py" not in of_lstm | of_vgg


def test_sources_of_a_package_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo_of_mine" / "parts").mkdir(parents=True)
    files = {
        "__init__.py": "",
        "net.py": "from .parts import layers\nfrom zoo_of_mine.losses import loss\nimport json\n",
        "parts/__init__.py": "",
        "parts/layers.py": "from ..losses import other\nfrom . import norms\n",
        "parts/norms.py": "",
        "losses.py": "import zoo_of_mine.net\n",
        "unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / "zoo_of_mine" / name).write_text(text)
    model = tmp_path / "zoo_of_mine" / "net.py"
    model.write_text(files["net.py"] + write(tmp_path / "declared.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    found = registry.sources(registry.find("mine", "zoo_of_mine.net"))
    own = {str(path.relative_to(tmp_path / "zoo_of_mine")) for path in found if path.is_relative_to(tmp_path)}
    assert own == set(files) - {"unused.py"}
