"""profzoo.workflow: the files that tables, figures and pages take, per configuration."""

import dataclasses
from pathlib import Path

import pytest

from profzoo.errors import ConfigError
from profzoo.workflow import imported
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.pages import Pages, code_of_figures
from profzoo.workflow.tables import user_range_inputs, user_range_tables
from tests.unit.workflow_runs import lacking, select, tables, wildcards

TRAIN, INFERENCE = "results/lstm/train", "results/lstm/inference"


def shown(files: list[str]) -> list[str]:
    return [file.replace("<results>", "results") for file in files]


def pages(run) -> Pages:
    return Pages(run, tables(run), Comparison(run))


def test_all_tools_of_a_cell_go_into_tables() -> None:
    found = tables(select()).inputs()
    assert shown(found["time"]) == [f"{TRAIN}.time.csv", f"{INFERENCE}.time.csv"]
    assert shown(found["ncu"]) == [f"{TRAIN}.ncu.launch.csv", f"{INFERENCE}.ncu.launch.csv"]
    assert shown(found["kernels"]) == [f"{TRAIN}.kernels.csv", f"{INFERENCE}.kernels.csv"]
    assert shown(found["coverage"]) == [f"{TRAIN}.ncu.launch.coverage.csv", f"{INFERENCE}.ncu.launch.coverage.csv"]
    assert found["ranks"] == []


def test_without_nsys_nothing_is_covered_or_replayed() -> None:
    mine = tables(select(tool=["ncu"]))
    assert "coverage" not in mine.inputs() and mine.replay_tables() == [] and mine.layer_tables() == []
    assert mine.layer_verdict_inputs() == {} and mine.replay_verdict_inputs() == {}
    assert {*mine.verdict_inputs()} == {"details", "launches"}


def test_files_that_cannot_be_made_are_left_out() -> None:
    run = lacking(select(), "lstm/train.time.csv.json", "tables/layers.csv")
    mine = tables(run)
    assert shown(mine.timing_sidecars()) == [f"{INFERENCE}.time.csv.json"]
    assert mine.layer_tables() == [] and mine.replay_tables() != []
    assert "layers" not in pages(run).counter_inputs()


def test_verdicts_go_by_counters_where_the_default_set_has_some() -> None:
    assert {*tables(select()).verdict_inputs()} == {"details", "launches"}
    known = tables(select(ncu={"set": "roofline"})).verdict_inputs()
    assert known["roofline"] == "<results>/tables/roofline.csv" and known["peaks"] == "<results>/peaks/gpu.csv"
    # A set of ranges has nothing of kernels.
    assert tables(select(ncu={"set": "ranges"})).verdict_inputs() == {}


def test_a_cell_has_first_plans_where_a_trace_precedes_counters() -> None:
    counted = {"ncu": {"set": "roofline"}}
    assert tables(select(**counted)).first_plans() == ["{phase}.first-plan.csv"]
    # The set that only lists launches counts nothing that a plan goes by.
    assert not any(
        tables(run).first_plans() for run in (select(), select(tool=["nsys"]), select(tool=["ncu"], **counted))
    )


def test_memory_is_told_of_cells_that_are_timed_with_remedies_where_they_are_known(tmp_path: Path) -> None:
    run = select()
    assert shown(tables(run).memory_tables()) == [f"{TRAIN}.memory.csv", f"{INFERENCE}.memory.csv"]
    assert tables(select(torch={"baseline": 5}, tool=["torch"])).memory_tables() == []
    known = dataclasses.replace(run, results=str(tmp_path))
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm" / "train.memory-remedies.csv").touch()
    assert shown(tables(known).memory_tables()) == [f"{TRAIN}.memory-remedies.csv", f"{INFERENCE}.memory.csv"]


def test_processes_are_compared_of_trainings_on_several_gpus() -> None:
    assert tables(select()).rank_inputs() == []
    mine = tables(select(gpus=2))
    assert shown(mine.rank_inputs()) == [f"{TRAIN}.ranks.csv"]
    assert mine.rank_tables() == ["<results>/tables/ranks.csv"]
    assert tables(select(gpus=2, tool=["torch"])).rank_tables() == []


def test_operations_of_several_processes_are_joined_where_torch_traces_them() -> None:
    assert tables(select(tool=["torch"])).collective_tables_across() == []
    mine = tables(select(gpus=2, tool=["torch"]))
    files = {"collectives": [f"{TRAIN}.torch-collectives.csv"], "skew": [f"{TRAIN}.torch-skew.csv"]}
    assert {name: shown(paths) for name, paths in mine.collective_inputs().items()} == files
    across = [f"results/tables/{name}.csv" for name in files]
    assert shown(mine.collective_tables_across()) == across and {*across} < {*shown(mine.everything())}
    assert tables(select(gpus=2, tool=["nsys"])).collective_tables_across() == []


def test_traces_for_perfetto_are_those_of_nsys() -> None:
    traces = [f"{cell}.nsys.trace.json.gz" for cell in (TRAIN, INFERENCE)]
    assert shown(pages(select(tool=["nsys"])).required_traces()) == traces
    with pytest.raises(ConfigError, match=r"no selected cell has a trace of nsys to write for Perfetto: .* tool=nsys"):
        pages(select(tool=["torch"])).required_traces()


def test_all_makes_the_exports_of_chosen_tools_and_the_report() -> None:
    made = shown(tables(select(tool=["torch"])).everything())
    assert made[:2] == ["results/tables/layers.csv", "results/tables/owners.csv"]
    assert made[-1] == "results/report.html"
    assert f"{TRAIN}.torch.launches.csv" in made and f"{TRAIN}.time.csv" in made
    assert not [path for path in made if "nsys" in path or "ncu" in path or "numerics" in path]
    # A named run will be a side of a comparison; steps of several processes are not repeated.
    named = shown(tables(select(tool=["torch"], run="before")).everything())
    assert {*named} - {*made} == {f"{TRAIN}.numerics.json", f"{INFERENCE}.numerics.json"}
    several = shown(tables(select(tool=["torch"], run="before", gpus=2)).everything())
    assert f"{TRAIN}.numerics.json" not in several


def test_layers_are_told_by_what_other_tools_saw() -> None:
    every = tables(select(ncu={"set": "roofline"})).layer_inputs(wildcards())
    assert every["trace_database"] == "<results>/lstm/train.nsys.sqlite" and every["peaks"] == "<results>/peaks/gpu.csv"
    assert every["sets"][0] == "<results>/lstm/train.ncu.roofline.csv"
    assert tables(select(tool=["torch"])).layer_inputs(wildcards()) == {}


def test_figures_are_those_that_there_is_data_for() -> None:
    of_all, of_torch = (pages(select(tool=tool)).figure_files() for tool in (["ncu", "nsys", "torch"], ["torch"]))
    assert {*of_torch} < {*of_all} and "<results>/figures/step_time.svg" in of_torch
    without = pages(lacking(select(), "figures/step_time.svg")).figure_files()
    assert {*of_all} - {*without} == {"<results>/figures/step_time.svg"}
    assert not pages(select()).comparison_figure_files()
    assert all(path.suffix == ".py" and path.exists() for path in code_of_figures(of_all))


def test_of_copied_results_what_is_there_is_taken(tmp_path: Path) -> None:
    run = select(tmp_path, collect=False)
    (tmp_path / "lstm").mkdir()
    for name in ("train.time.csv", "train.time.csv.json", "train.nsys.csv", "train.nsys.csv.json",
                 "train.nsys-steps.csv"):  # fmt: skip
        (tmp_path / "lstm" / name).touch()
    found, missing = imported.find_available(run, tmp_path / "logs", None)
    assert found.tools == ["nsys"] and found.available["lstm", "train"] == {"time", "nsys"}
    assert {one["tool"] for one in missing if one["phase"] == "train"} == {"ncu", "torch"}
    assert shown(tables(found).inputs()["nsys"]) == [f"{TRAIN}.nsys.csv"]
    # No program came along, and no trace to make one of.
    assert tables(found).traced_files("program") == []
    (tmp_path / "lstm/train.nsys.sqlite").touch()
    assert tables(found).traced_files("program") == ["<results>/lstm/train.program.npz"]


@pytest.mark.parametrize(
    ("tools", "parts"),
    [
        (["nsys"], {"kernels_0", "kernels_1", "steps_0", "steps_1"}),
        (["torch"], {"layers_0", "layers_1"}),
        (["sample"], set()),
    ],
)
def test_sides_are_compared_by_what_tools_saw(tools: list[str], parts: set[str]) -> None:
    mine = Comparison(select(tool=tools, reference="plain", candidate=["bf16"]))
    assert {*mine.parts()} == parts
    assert ("compare_parts" in mine.tables()) == bool(parts) and "compare" in mine.tables()
    assert ({*mine.energies()} == {"sampled_0", "sampled_1"}) == (tools == ["sample"])
    (turns,) = mine.times().values()
    assert turns == [f"<results>/lstm/{phase}.plain-vs-bf16.rounds.csv" for phase in ("train", "inference")]
    # Processes in turn repeat their steps themselves.
    assert mine.numbers() == {}


def test_a_folder_of_results_is_a_side_whose_times_are_there(tmp_path: Path) -> None:
    run = select(tmp_path / "here", tool=["torch"], reference=str(tmp_path), candidate=["plain"])
    mine = Comparison(run)
    assert mine.times()["side_0"][0] == f"{tmp_path}/lstm/train.time.csv"
    assert mine.times()["side_1"][0] == "<results>/lstm/train.time.csv"
    # A folder may lack layers; those of this run are made.
    assert mine.parts()["layers_0"] == [] and len(mine.parts()["layers_1"]) == 2
    repeated = [f"<results>/lstm/{phase}.numerics.json" for phase in ("train", "inference")]
    assert mine.numbers() == {"numbers_0": [], "numbers_1": repeated}
    (given := tmp_path / "lstm/train.numerics.json").parent.mkdir()
    given.touch()
    assert mine.numbers()["numbers_0"] == [str(given)]
    unmeasured = select(tmp_path / "here", tool=["torch"], reference=str(tmp_path), candidate=["plain"], collect=False)
    assert Comparison(unmeasured).numbers() == {"numbers_0": [str(given)], "numbers_1": []}
    assert mine.measured_cells() == []
    for home in (tmp_path / "lstm", tmp_path / "here/lstm"):
        home.mkdir(parents=True, exist_ok=True)
        (home / "train.time.csv").touch()
    assert mine.measured_cells() == [("lstm", "train")]


def test_sides_are_counted_where_a_set_with_counters_is_chosen(tmp_path: Path) -> None:
    """Folders of results are not: of these, what exists is read."""
    chosen = {"ncu": {"set": "survey"}, "reference": "plain", "candidate": ["bf16"]}
    mine = Comparison(select(**chosen))
    assert mine.counters()["counters_1"] == [f"<results>/lstm@bf16/{phase}.ncu.csv" for phase in ("train", "inference")]
    assert mine.is_counted() and "compare_counters" in mine.tables() and mine.counted_files() == {}
    # The default set counts launches alone.
    assert not Comparison(select(reference="plain", candidate=["bf16"])).is_counted()
    lost = lacking(select(**chosen), "tables/compare_counters.csv")
    assert "compare_counters" not in Comparison(lost).tables()
    other = Comparison(select(tmp_path / "here", **chosen | {"reference": str(tmp_path)}))
    assert {*other.counters()} == {"counters_1"} and not other.is_counted()
    assert other.counted_files() == {str(tmp_path): []}
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm/train.ncu.csv").write_text("id,lts__t_bytes.sum\n0,1\n")
    assert other.is_counted() and len(other.counted_files()[str(tmp_path)]) == 1


def test_tables_of_source_lines_are_shown_where_they_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = pages(select())
    assert mine.line_tables() == []
    table = Path(f"{TRAIN}.ncu-source.full.csv")
    table.parent.mkdir(parents=True)
    table.write_text("a\n")
    Path("results/unet").mkdir()
    Path("results/unet/train.ncu-source.full.csv").write_text("of another cell\n")
    ((path, before),) = mine.line_tables()
    assert path == str(table)
    table.write_text("b\n")
    # Another content makes the page again.
    assert mine.line_tables() != [(path, before)]


TRAINED, INFERRED = "<results>/lstm/train.ranges.csv", "<results>/lstm/inference.ranges.csv"


def test_cells_of_tools_that_see_ranges_have_a_table() -> None:
    assert user_range_tables(select()) == user_range_tables(select(tool=["nsys"])) == [TRAINED, INFERRED]
    assert user_range_tables(select(tool=["torch"])) == [TRAINED, INFERRED]
    assert user_range_tables(select(tool=["ncu"])) == user_range_tables(select(tool=["sample"])) == []
    assert user_range_tables(lacking(select(), "lstm/train.ranges.csv")) == [INFERRED]


def test_a_table_is_made_of_what_its_tools_traced() -> None:
    own = {"trace_database", "trace_database_sidecar"}, {"launches", "ranges", "sidecar"}, {"census", "sets"}
    found = user_range_inputs(tables(select()), wildcards())
    assert {*found} == own[0] | own[1] | own[2]
    assert found["ranges"] == "<results>/lstm/train.torch.ranges.csv"
    assert {*user_range_inputs(tables(select(tool=["nsys"])), wildcards())} == own[0]
    assert {*user_range_inputs(tables(select(tool=["torch"])), wildcards())} == own[1]


def test_copied_results_without_traces_have_the_table_that_came_along(tmp_path: Path) -> None:
    run = select(tmp_path, collect=False)
    assert user_range_tables(run) == []
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm" / "train.ranges.csv").touch()
    assert user_range_tables(run) == [TRAINED]
    # What would make an empty one of nothing is not what it is made of.
    assert {"trace_database", "ranges"} < {*user_range_inputs(tables(run), wildcards())}
    (tmp_path / "lstm" / "inference.torch.ranges.csv").touch()
    assert user_range_tables(run) == [TRAINED, INFERRED]
    found = user_range_inputs(tables(run), wildcards(phase="inference"))
    assert "ranges" in found and "trace_database" not in found
