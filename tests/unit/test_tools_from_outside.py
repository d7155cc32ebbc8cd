"""Tools of extensions: one that traces or times is used wherever a tool of profzoo that does so is."""

import json
import re
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from snakemake.exceptions import WorkflowError

import profzoo
from profzoo import extensions, tools
from profzoo.tables import across_cells, kernel_table
from profzoo.tools.nsys import tables as export_nsys
from profzoo.verdicts.causes import cpu_verdicts
from profzoo.workflow import extension_checks, patterns
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.jobs import Jobs
from profzoo.workflow.pages import Pages
from tests.unit.workflow_runs import select, tables, wildcards

SCHEMA = """\
order: 90
does: [{does}]
type: object
additionalProperties: false
properties:
  window: {{type: integer, default: 2}}
  time_limit: {{type: string, default: 1h}}
"""
# Leaves what nsys leaves, under names of its own.
FILES = '''"""What the tool leaves."""


def table_inputs(own):
    """Tables."""
    return {tables}


def provided_files(own):
    """What others read."""
    return {provided}
'''
SPY_TABLES = {
    "spy": "{phase}.spy.csv",
    "spy_sidecar": "{phase}.spy.csv.json",
    "steps": "{phase}.spy-steps.csv",
    "kernels": "{phase}.spy-kernels.csv",
}
PARTS = ("ranks", "replay", "host")
SPY_FILES = {
    "launch_times": "{phase}.spy.csv",
    "program": "{phase}.spy-program.npz",
    "timeline": "{phase}.spy-timeline.json",
    **{name: f"{{phase}}.spy-{name}.csv" for name in PARTS},
}
ACTIVITY = '"""As nsys."""\n\nfrom profzoo.tools.nsys.activity import *  # noqa: F403\n'
WATCH = {"time": "{phase}.watch.csv", "time_sidecar": "{phase}.watch.csv.json"}
TRAIN, INFERENCE = "<results>/lstm/train", "<results>/lstm/inference"
Written = Callable[..., None]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Makes an extension with one tool and uses it; none is in use once the test is over."""
    monkeypatch.setenv(extensions.PASSED, "[]")

    def write(name: str, does: str, inputs: dict[str, str], provided: dict[str, str], **modules: str) -> None:
        home = tmp_path / "lab/tools" / name
        home.mkdir(parents=True)
        (home / "schema.yaml").write_text(SCHEMA.format(does=does))
        (home / "command.py").write_text('"""Nothing differs."""\n')
        (home / "files.py").write_text(FILES.format(tables=inputs, provided=provided))
        for module, text in modules.items():
            (home / f"{module}.py").write_text(text)
        extensions.use([str(tmp_path / "lab")])
        extension_checks.check_extensions()

    return write


@pytest.fixture
def spy(written: Written) -> None:
    written("spy", "trace", SPY_TABLES, SPY_FILES, activity=ACTIVITY)


@pytest.fixture
def watch(written: Written) -> None:
    written("watch", "time", {"watch": "{phase}.watch.csv", **WATCH}, {})


@pytest.mark.usefixtures("spy")
def test_a_tool_that_traces_has_all_that_is_made_of_a_trace() -> None:
    run = select(tool=["spy"])
    made, pages = tables(run), Pages(run, tables(run), Comparison(run))
    assert made.inputs()["steps"] == [f"{TRAIN}.spy-steps.csv", f"{INFERENCE}.spy-steps.csv"]
    assert made.inputs()["kernels"] == [f"{TRAIN}.spy-kernels.csv", f"{INFERENCE}.spy-kernels.csv"]
    assert made.replay_tables() == ["<results>/tables/replay.csv", "<results>/tables/host.csv"]
    assert made.replay_verdict_inputs()["programs"][0] == f"{TRAIN}.spy-program.npz"
    assert Jobs(run).expected_gains() == "<results>/tables/trials.expected.json"
    assert pages.kernel_inputs()["timelines"][1] == f"{INFERENCE}.spy-timeline.json"
    by_nsys = {Path(path).stem for path in pages_of("nsys").figure_files()}
    assert {Path(path).stem for path in pages.figure_files()} == by_nsys
    assert by_nsys > {"classes", "launches", "overhead", "ranges", "steps"}
    spread = select(tool=["spy"], gpus=2)
    assert tables(spread).rank_inputs() == [f"{TRAIN}.spy-ranks.csv"]


def pages_of(*chosen: str) -> Pages:
    run = select(tool=list(chosen))
    return Pages(run, tables(run), Comparison(run))


@pytest.mark.usefixtures("spy")
def test_it_stands_beside_tools_that_count_and_attribute() -> None:
    run = select(tool=["ncu", "spy", "torch"], ncu={"set": "roofline", "census": "ncu"})
    made = tables(run)
    assert made.inputs()["coverage"][0] == f"{TRAIN}.ncu.roofline.coverage.csv"
    assert made.layer_verdict_inputs()["trees"] == [f"{TRAIN}.layers.csv", f"{INFERENCE}.layers.csv"]
    assert made.verdict_inputs()["roofline"] == "<results>/tables/roofline.csv"
    # The trace itself is read in the form of nsys alone.
    assert "trace_database" not in made.layer_inputs(wildcards())
    assert "layer_counters" not in pages_of("spy").counter_inputs()


@pytest.mark.usefixtures("spy")
def test_it_is_compared() -> None:
    run = select(tool=["spy"], reference="plain", candidate=["bf16"])
    compared = Comparison(run)
    assert compared.parts()["steps_1"] == ["<results>/lstm@bf16/train.spy-steps.csv",
                                           "<results>/lstm@bf16/inference.spy-steps.csv"]  # fmt: skip
    assert {*compared.parts()} == {"kernels_0", "kernels_1", "steps_0", "steps_1"}
    assert {*compared.tables()} == {"compare", "compare_parts"}


@pytest.mark.usefixtures("spy")
def test_its_numbers_go_into_the_tables_across_cells(tmp_path: Path, recording: Callable) -> None:
    folder = tmp_path / "results/mobilenetv2"
    folder.mkdir(parents=True)
    (folder / "train.time.csv").write_text("step,wall_ns,gpu_ns,items\n0,1,2,8\n1,3,500000000,8\n")
    run = {"parameters": 3, "batch": 8, "steps": 2, "items": 16, "window_wall_ns": 10**9, "step_ns": 5e8, "loss": 2.5}
    run |= {"peak_memory_bytes": 2**40, "peak_rss_bytes": 1, "device": "NVIDIA H200", "started": "2026-11-20T01:00:00"}
    run |= {"cell": {"window": 10, "steps": 13, "workload": "trimmed", "precision": "fp32"}, "capture": "window"}
    names = {name: str(folder / pattern.format(phase="train")) for name, pattern in SPY_TABLES.items()}
    (folder / "train.json").write_text(json.dumps({"tool": "spy", "device_type": "cuda", **run}))
    traced = str(recording("nsys/train.sqlite"))
    export_nsys.export_trace(traced, str(folder / "train.json"), names["spy"], names["steps"], names["spy_sidecar"])
    kernel_table.main(names["spy"], names["spy_sidecar"], [], None, names["kernels"])
    shutil.copy(folder / "train.json", folder / "train.time.csv.json")
    inputs = {key: [path] for key, path in names.items()}
    inputs |= {"time": [str(folder / "train.time.csv")], "time_sidecar": [str(folder / "train.time.csv.json")]}
    made = ("cells", "activity", "kernels", "ranges", "steps", "agreement", "coverage", "repetition")
    outputs = {name: str(tmp_path / f"{name}.csv") for name in made}
    across_cells.tabulate_cells(inputs, outputs)
    found = {name: pd.read_csv(path) for name, path in outputs.items()}
    assert set(found["activity"]["tool"]) == set(found["ranges"]["tool"]) == {"spy"}
    assert found["agreement"].loc[0, "spy_launches"] == found["steps"].loc[0, "launches"] == pytest.approx(475)
    assert found["kernels"]["launches"].sum() == pytest.approx(475)


@pytest.mark.usefixtures("watch")
def test_a_tool_that_times_is_the_baseline() -> None:
    run = select(tool=["watch"])
    made = tables(run)
    assert run.pattern("time") == "<results>/{model}/{phase}.watch.csv"
    assert made.timing_sidecars() == [f"{TRAIN}.watch.csv.json", f"{INFERENCE}.watch.csv.json"]
    assert made.inputs()["time"] == [f"{TRAIN}.watch.csv", f"{INFERENCE}.watch.csv"]
    assert patterns.required_files(run.config, run.tools)["time"] == ["{phase}.watch.csv", "{phase}.watch.csv.json"]
    assert f"{TRAIN}.watch.csv" in made.exports() and f"{TRAIN}.time.csv" not in made.exports()
    assert "<results>/figures/step_time.svg" in pages_of("watch").figure_files()


@pytest.mark.usefixtures("watch")
def test_its_steps_are_those_of_a_cell_in_python(tmp_path: Path) -> None:
    home = tmp_path / "results/lstm"
    home.mkdir(parents=True)
    (home / "train.watch.csv").write_text("step,wall_ns,gpu_ns,items\n0,5,4,8\n")
    (home / "train.watch.csv.json").write_text(json.dumps({"cell": {"batch": 3}}))
    (home / "train.nsys-rep.json").write_text(json.dumps({"cell": {"batch": 4}}))
    cell = profzoo.load(tmp_path / "results").cell("lstm")
    assert cell.steps["wall_ns"].tolist() == [5] and cell.settings == {"batch": 3}


def test_a_tool_that_runs_launches_alone_explains_its_longer_times(written: Written) -> None:
    written("slow", "count", {}, {}, activity='"""Alone."""\n\nTABLE = None\nPLACE = 40\nALONE = True\n')
    row = {"model": "m", "phase": "train", "launches_spread": 0.0, "gpu_ns_spread": 0.14}
    row |= {"nsys_launches": 1000, "slow_launches": 1000, "nsys_gpu_ns": 5e6, "slow_gpu_ns": 5.8e6}
    found = across_cells.explain_disagreements(pd.DataFrame([row]), pd.DataFrame()).iloc[0]
    assert found["cause"].startswith(
        "under slow each launch runs alone and takes 0.8 µs more, beside 5.0 µs: take times"
    )


def test_a_tool_that_attributes_is_judged_on_a_cpu(written: Written) -> None:
    parts = pd.DataFrame([{"model": "m", "phase": "train", "tool": "owner", "clock": "cpu", "range": "forward"}])
    assert cpu_verdicts.cpu_cells(parts) == []
    written("owner", "attribute", {}, {}, activity='"""Ranges."""\n\nTABLE = None\n')
    assert cpu_verdicts.cpu_cells(parts) == [("m", "train")]


def test_a_tool_resolves_its_settings_by_the_whole_configuration(written: Written) -> None:
    module = '"""Half of the window."""\n\n\ndef resolve_settings(config):\n    """As the baseline."""\n'
    module += '    return {**config["half"], "window": config["time"]["window"] // 2}\n'
    written("half", "sample", {}, {}, settings=module)
    assert select(time={"window": 30}).config["half"]["window"] == 15


def test_what_nothing_reads_is_named(written: Written) -> None:
    written("spy", "trace", {}, {"step": "{phase}.spy-steps.csv"})
    with pytest.raises(WorkflowError, match="'spy' provides 'step', which nothing reads: did you mean 'steps'"):
        tables(select(tool=["spy"])).inputs()


@pytest.mark.usefixtures("spy")
def test_rules_take_the_file_of_the_chosen_tool_else_that_of_profzoo() -> None:
    assert select(tool=["spy"]).pattern("launch_times") == "<results>/{model}/{phase}.spy.csv"
    assert select(tool=["torch"]).pattern("launch_times") == "<results>/{model}/{phase}.nsys.csv"
    assert select(tool=["spy"]).pattern("trace_database") == "<results>/{model}/{phase}.nsys.sqlite"
    timed = select(tool=["nsys"], torch={"baseline": 20})
    assert timed.pattern("time") == "<results>/{model}/{phase}.time.csv"


def test_each_file_that_is_provided_has_a_form_that_there_is() -> None:
    forms = {name: re.findall(r"\((profzoo[\w.]+)\)$", means) for name, means in tools.PROVIDED.items()}
    for name, found in forms.items():
        assert found or name.endswith("_sidecar"), name
        for dotted in found:
            module, _, last = dotted.rpartition(".")
            assert last in (last.lower(), last.upper())
            assert hasattr(import_module(module), last) if last.isupper() else import_module(dotted)
