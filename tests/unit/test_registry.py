"""harness/registry: what models declare, read without importing them; every unusable file named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.cell import registry, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.records import import_graph

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
    lines = [f"{name} = {value}" for name, value in declared.items() if value is not None]
    path.write_text("\n".join([*lines, DEFINED]))
    return path


def test_the_zoo_declares_both_workloads_and_its_source() -> None:
    further = {"large": 0, "single": 0}
    for model in registry.shipped_models().values():
        assert {"trimmed", "reference"} <= set(model.workloads) and model.groups and model.source
        assert (
            model.groups[-1] in ("classic", "modern")
            and len({"classic", "modern", *model.groups}) == len(model.groups) + 1
        )
        for name, workload in model.workloads.items():
            assert all(phase["batch"] >= 1 for phase in workload.values())
            assert set(workload) == ({"inference"} if name in further else set(settings.PHASES))
            if name in further:
                further[name] += 1
                original = {key: value for key, value in model.workloads["reference"]["inference"].items()
                            if key in model.shape}  # fmt: skip
                assert workload["inference"]["batch"] == 1 and original.items() <= workload["inference"].items()
    assert further == {"large": 5, "single": 16}


def test_a_declaration_may_hold_mappings_above_it(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", WORKLOADS="{'trimmed': {'inference': {'batch': 2, **WIDE, 'depth': 1}}}")
    path.write_text(f"WIDE = {{'width': 3, 'depth': 4}}\n{path.read_text()}")
    assert registry.read_model(path, "m", "m").workloads == {
        "trimmed": {"inference": {"batch": 2, "width": 3, "depth": 1}}
    }
    path.write_text(path.read_text().replace("WIDE = {'width'", "WIDE = {{}[0]"))
    with pytest.raises(ConfigError, match="WORKLOADS must be a literal"):
        registry.read_model(path, "m", "m")


def test_only_workloads_and_two_functions_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", **dict.fromkeys(set(GOOD) - {"WORKLOADS"}))
    model = registry.read_model(path, "m", "m")
    assert (model.groups, model.source, model.parameters, model.shape) == (("own",), "", None, {})
    path.write_text(path.read_text().replace(DEFINED, "def build(): ..."))
    with pytest.raises(ConfigError, match="'m' does not define sample or dataset; the README"):
        registry.read_model(path, "m", "m")


@pytest.mark.parametrize(
    ("line", "notes"),
    [("note_token()", True), ("tokens.note_token()  # Another.", True), ("# note_token()", False), ("def note_token(): ...", False)],
)  # fmt: skip
def test_a_model_that_notes_tokens(tmp_path: Path, line: str, notes: bool) -> None:
    path = write(tmp_path / "m.py")
    path.write_text(f"{path.read_text()}\nclass Network:\n    {line}\n    ...\n")
    assert registry.generates_tokens(registry.read_model(path, "m", "m")) == notes


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"def (", "model 'm' is not Python: invalid syntax (line 1)"),
        (b"name = '\xff'", "model 'm' is not Python: (unicode error)"),
        (b"x = " + b"(" * 500, "model 'm' is not Python: "),
        (None, "model 'm' cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_no_python(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "m.py"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(registry.UnusableError) as error:
        registry.read_model(path, "m", "m")
    assert str(error.value).startswith(f"{path}: {words}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"WORKLOADS": None}, "does not declare WORKLOADS, such as"),
        ({"PARAMETERS": "2 * x"}, "PARAMETERS must be a literal"),
        ({"SHAPE": "{**unknown}"}, "SHAPE must be a literal"),
        ({"WORKLOADS": "{}"}, "WORKLOADS is empty"),
        ({"WORKLOADS": "{'trimmed': {}}"}, "WORKLOADS['trimmed'] = {} is not a mapping of phases"),
        ({"WORKLOADS": "{'trimmed': {'trian': {'batch': 1}}}"}, "unknown phase; did you mean 'train'?"),
        ({"WORKLOADS": "{'trimmed': {'train': {'size': 1}}}"}, "holds no batch of 1 to 1000000"),
        ({"WORKLOADS": "{'trimmed': {'train': {'batch': 1, 'size': None}}}"}, "['size'] = None is none of bool, int"),
        ({"SHAPE": "{'size': (3, 4)}"}, "SHAPE['size'] = (3, 4) is none of bool, int"),
        ({"GROUPS": "'own'"}, "GROUPS = 'own' is not a tuple or list"),
    ],
)
def test_declarations_of_another_form(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        registry.read_model(write(tmp_path / "m.py", **changes), "m", "m")
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write(tmp_path / "good.py")
    write(tmp_path / "no@name.py")
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "unfinished.py").write_text("def build(shape): ...")
    (tmp_path / "latin.py").write_bytes(b"name = '\xe9'")
    (tmp_path / "helper.py").write_text("def layers(): ...")
    (tmp_path / ".#good.py").symlink_to("someone@host.4711")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "__init__.py").write_text("")
    monkeypatch.setattr(registry, "ZOO", tmp_path)
    registry.forget_models()
    yield tmp_path
    registry.forget_models()


def test_a_file_that_cannot_be_used_leaves_the_others(folder: Path) -> None:
    assert list(registry.shipped_models()) == ["good"] and registry.find_model("good").name == "good"
    assert set(registry.unusable_models()) == {"broken", "gone", "latin", "no@name", "unfinished"}
    for name, line in registry.unusable_models().items():
        assert line.startswith(f"{folder / name}.py: ") and "\n" not in line
    said = {"broken": "is not Python", "gone": "cannot be read: No such file", "unfinished": "WORKLOADS"}
    for name, words in said.items():
        with pytest.raises(registry.UnusableError, match=words):
            registry.find_model(name)
    for name in ("helper", ".#good"):
        with pytest.raises(ConfigError, match="unknown model"):
            registry.find_model(name)


def test_it_is_said_where_it_is_asked_for(folder: Path) -> None:
    checked = configuration.normalise_config({"settings": {"broken": {"batch": 2}}, "phases": ["inference"]})
    assert configuration.select_cells(checked) == [("good", "inference")]
    assert [line.split(":")[0] for line in configuration.describe_left_out(checked)] == [
        f"models = all leaves out {name}" for name in ("broken", "gone", "latin", "no@name", "unfinished")
    ]
    good = configuration.normalise_config({"models": ["good"]})
    assert configuration.select_cells(good) == [("good", "inference")] and configuration.describe_left_out(good) == []
    configuration.check_targets(["results/good/inference.time.csv"], "results", good)
    with pytest.raises(ConfigError, match=r"models = 'broken': .*broken.py: model 'broken' is not Python"):
        configuration.select_cells(configuration.normalise_config({"models": ["good", "broken"]}))
    with pytest.raises(ConfigError, match=r"target 'results/broken/train.time.csv': .*broken.py: model 'broken' is no"):
        configuration.check_targets(["results/broken/train.time.csv"], "results", good)
    with pytest.raises(ConfigError, match="model 'good' has no phase 'train' in trimmed"):
        configuration.check_targets(["results/good/weights.pt"], "results", good)


def test_a_workload_or_phase_that_a_model_lacks(folder: Path) -> None:
    write(folder / "other.py", WORKLOADS="{'trimmed': {'train': {'batch': 2}, 'inference': {'batch': 2}}}")
    registry.forget_models()
    every = [("good", "inference"), ("other", "train"), ("other", "inference")]
    assert configuration.select_cells(configuration.normalise_config({})) == every
    training = configuration.normalise_config({"phases": ["train"]})
    assert configuration.select_cells(training) == [("other", "train")]
    assert configuration.describe_left_out(training)[-1] == "good is left out: it declares no train for its workload"
    with pytest.raises(ConfigError, match="model 'good' has no phase 'train' in trimmed"):
        configuration.select_cells(configuration.normalise_config({"phases": ["train"], "models": ["good"]}))
    with pytest.raises(ConfigError, match="selects no cell"):
        configuration.select_cells(configuration.normalise_config({"workload": "reference"}))


def test_a_module_of_ones_own_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_pieces").mkdir()
    (tmp_path / "own_pieces" / "__init__.py").write_text("def (")
    (tmp_path / "own_broken.py").write_text("def (")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module, words in (("own_broken", "is not Python"), ("own_pieces.net", "SyntaxError: ")):
        own = {"mine": {"module": module, "batch": 2}}
        checked = configuration.normalise_config({"settings": own, "models": ["lstm"]})
        assert {model for model, _ in configuration.select_cells(checked)} == {"lstm"}
        with pytest.raises(ConfigError, match=f"models = 'mine': .*{words}"):
            configuration.select_cells(checked | {"models": ["mine"]})


@pytest.mark.parametrize("module", ["no_such_module", "no_such.module", "models.no_such"])
def test_modules_that_are_not_there(module: str) -> None:
    with pytest.raises(ConfigError, match="cannot be found"):
        registry.find_model("mine", module)


def test_sources_are_what_the_cell_is_measured_with() -> None:
    zoo, harness = registry.shipped_models(), import_graph.PROJECT / "profzoo/harness"
    names = ("interface", "ranges", "step/batches", "step/step_loop", "observers/recorders")
    shared = {harness / f"{name}.py" for name in names}
    shared.add(import_graph.PROJECT / "profzoo/range_names.py")
    of_lstm, of_vgg = (set(registry.source_files(zoo[name])) for name in ("lstm", "vgg19"))
    assert shared <= of_lstm & of_vgg
    own = {path for path in of_lstm if path.parent == registry.ZOO and path.name != "__init__.py"}
    assert own == {zoo["lstm"].path}
    assert {zoo["vgg16"].path, harness / "tasks" / "classification.py"} <= of_vgg
    assert import_graph.PROJECT / "profzoo/cell/settings.py" not in of_lstm | of_vgg


# What measured programs take from elsewhere than harness/: tools of the operating system, names, formats, and which of
# the user's environment variables are secrets that child processes do not get.
BESIDE_HARNESS = ("cell", "collect", "errors.py", "io", "json_types.py", "machine", "range_names.py", "records",
                  "secret_detection.py", "statistics")  # fmt: skip


def test_a_change_in_harness_and_in_no_other_package_of_measurements_measures_again() -> None:
    """harness/ is what runs in a measured process, all of it; what it takes from elsewhere measures nothing."""
    package = import_graph.PROJECT / "profzoo"
    every = {path for model in registry.shipped_models().values() for path in registry.source_files(model)}
    own = {path for path in every if path.is_relative_to(package)}
    harness = set((package / "harness").rglob("*.py"))
    assert harness <= own
    others = {path.relative_to(package).parts[0] for path in own - harness} - {"__init__.py"}
    assert others <= set(BESIDE_HARNESS), sorted(others)


def test_sources_of_a_package_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo_of_mine" / "parts").mkdir(parents=True)
    files = dict.fromkeys(("__init__.py", "parts/__init__.py", "parts/norms.py", "unused.py"), "") | {
        "net.py": "from .parts import layers\nfrom zoo_of_mine.losses import loss\nimport json\n",
        "parts/layers.py": "from ..losses import other\nfrom . import norms\n",
        "losses.py": "import zoo_of_mine.net\n",
    }
    for name, text in files.items():
        (tmp_path / "zoo_of_mine" / name).write_text(text)
    model = tmp_path / "zoo_of_mine" / "net.py"
    model.write_text(files["net.py"] + write(tmp_path / "declared.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    found = registry.source_files(registry.find_model("mine", "zoo_of_mine.net"))
    own = {str(path.relative_to(tmp_path / "zoo_of_mine")) for path in found if path.is_relative_to(tmp_path)}
    assert own == set(files) - {"unused.py"}
