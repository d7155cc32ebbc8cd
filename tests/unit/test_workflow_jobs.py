"""profzoo.workflow: the texts that jobs go by, the inputs of ncu's rules, resources and words of commands."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import InputFiles, OutputFiles

from profzoo import extensions
from profzoo.cell import registry
from profzoo.records import import_graph
from profzoo.workflow import command_lines
from profzoo.workflow.jobs import MEM_MB, JobResources, Jobs, SectionSetJobs
from profzoo.workflow.selection import SourceFiles
from tests.unit.workflow_runs import section_sets, select, wildcards


def text(described: str) -> dict:
    assert described == json.dumps(json.loads(described), sort_keys=True)
    return json.loads(described)


def test_a_job_goes_by_its_cell_and_what_is_added() -> None:
    jobs = Jobs(select(batch=3))
    found = text(jobs.describe_by("nsys", options=["-t", "cuda"])(wildcards()))
    assert found["tool"] == "nsys" and found["options"] == ["-t", "cuda"] and found["cell"]["batch"] == 3
    assert found["cell"]["model"] == "lstm" and found["cell"]["phase"] == "train" and found["environment"] == []
    assert text(jobs.describe_by("time", phase="inference")(wildcards()))["cell"]["phase"] == "inference"


def test_repeats_are_in_a_text_where_there_are_several() -> None:
    assert Jobs(select()).repeats == {} == Jobs(select(repeats=1)).repeats
    assert Jobs(select(repeats=3)).repeats == {"repeats": 3}
    assert Jobs(select(repeats=3, fork=False)).repeats == {"repeats": 3, "fork": False}


def test_weights_are_trained_on_one_gpu_for_one_step() -> None:
    jobs = Jobs(select(gpus=2, weights="trained", settings={"lstm": {"gpus": 2, "batch": 5}}))
    found = text(jobs.describe_training(wildcards(phase="inference")))["cell"]
    assert (found["gpus"], found["window"], found["phase"], found["batch"]) == (1, 1, "train", 5)
    assert jobs.weights(wildcards(phase="inference")) == "<results>/lstm/weights.pt"
    assert jobs.weights(wildcards()) == []
    assert Jobs(select()).weights(wildcards(phase="inference")) == []


def test_sides_take_turns_in_one_job() -> None:
    jobs = Jobs(select(reference="plain", candidate=["bf16"], repeats=2))
    found = text(jobs.describe_turns(wildcards()))
    assert sorted(found["order"]) == ["bf16", "bf16", "plain", "plain"]
    assert found["sides"]["plain"] == found["cell"] != found["sides"]["bf16"]
    one = Jobs(select(reference="plain", candidate=["kept"], variants={"kept": {"weights": "trained"}}))
    assert one.weights_by_side(wildcards()) == {}
    assert one.weights_by_side(wildcards(phase="inference")) == {"kept": "<results>/lstm/weights.pt"}


def test_settings_that_failed_in_trials_are_known_by_their_words(tmp_path: Path) -> None:
    """The smallest sets that failed; of cells without trials, or with a damaged sidecar, nothing is known."""
    (tmp_path / "lstm").mkdir()
    words = {"plan": ["precision=bf16", "graph=true"], "bf16": ["precision=bf16"], "": [], "tf32": ["precision=tf32"],
             "double_batch": ["batch=8", "samples=80"], "a+b": ["graph=true", "workers=2"]}  # fmt: skip
    failed = {"plan": "odd", "bf16": "odd (m.py:3)", "": "no memory", "double_batch": "large", "a+b": "both"}
    (tmp_path / "lstm/train.trials.csv.json").write_text(json.dumps({"words": words, "failed": failed}))
    (tmp_path / "lstm/inference.trials.csv.json").write_text("{}")
    assert Jobs(select(tmp_path)).failed_settings(wildcards()) == {
        "lstm train": {"precision=bf16": "odd (m.py:3)", "batch=8": "large", "graph=true workers=2": "both"}
    }
    (tmp_path / "lstm/train.trials.csv.json").write_text(json.dumps({"words": words, "failed": {}}))
    assert Jobs(select(tmp_path)).failed_settings(wildcards()) == {}


def test_a_section_set_is_described_by_its_options_and_plan() -> None:
    shared = Jobs(select(ncu={"launches": "sampled"}))
    jobs = SectionSetJobs(shared)
    found = text(jobs.describe_section_set(wildcards(set="roofline")))
    assert found["set"] == "roofline" and found["options"]
    planned = {"kernel_name", "launches", "replay", "budget", "sets", "selection", "error", "one_run",
               "operations"}  # fmt: skip
    assert {*found["planned"]} == planned
    assert text(jobs.describe_section_set(wildcards(set="launch")))["planned"] == {}
    assert text(jobs.describe_probe(wildcards(gpu="gpu", set="roofline")))["tool"] == "probe"
    peaks = json.loads(shared.describe_peaks())
    assert peaks["tool"] == "peaks" and peaks["cell"] == {"device": "auto"} and peaks["environment"] == []


def test_counts_of_a_set_come_from_the_census() -> None:
    sets = section_sets(select(ncu={"launches": "distinct"}))
    assert sets.census(wildcards(set="roofline")) == "<results>/lstm/train.ncu.launch.csv"
    assert sets.census(wildcards(set="launch")) == [] == sets.census(wildcards(set="ranges"))
    assert section_sets(select(ncu={"launches": "all"})).census(wildcards(set="roofline")) == []
    assert section_sets(select(tool=["nsys"])).joined_census(wildcards()) == []


def test_launches_are_taken_from_the_trace_where_the_census_may_be(tmp_path: Path) -> None:
    run = select(tmp_path, ncu={"census": "auto", "set": "roofline"})
    sets, job = section_sets(run), wildcards(set="roofline")
    assert sets.census(job) == "<results>/lstm/train.nsys-launches.csv"
    assert sets.joined_sets(job) == ["<results>/lstm/train.ncu.roofline.csv"]
    # A run that is not dry has the trace exported first.
    with pytest.raises(KeyError, match="lstm"):
        section_sets(run, dryrun=False).census(job)


def test_a_plan_is_made_again_only_until_the_set_was_profiled(tmp_path: Path) -> None:
    sets, job = section_sets(select(tmp_path)), wildcards(set="roofline")
    assert sets.until_profiled(sets.plan)(job) == "<results>/lstm/train.roofline.plan.json"
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm/train.roofline.ncu-rep.json").touch()
    assert sets.until_profiled(sets.plan)(job) == ("ancient", "<results>/lstm/train.roofline.plan.json")
    assert sets.until_profiled(["a.py"])(job) == ("ancient", ["a.py"]) and sets.until_profiled([])(job) == []
    assert sets.job_file(job) == "<results>/lstm/train.roofline.job.json"
    assert sets.plan(wildcards(set="launch")) == [] == sets.job_file(wildcards(set="launch"))


def test_a_set_of_which_nobody_knows_the_cost_is_probed() -> None:
    own = {"mine": {"metrics": ["sm__never_measured.sum"]}}
    sets = section_sets(select(gpu="h100", ncu={"sets": own}))
    assert sets.probe(wildcards(set="roofline")) == []
    assert sets.metrics(wildcards(set="mine")) == ["sm__never_measured.sum"]
    made = [f"<results>/peaks/h100.mine.{name}" for name in ("probe.csv", "ncu-rep.json")]
    assert sets.probe(wildcards(set="mine")) == made


@pytest.mark.parametrize(
    ("given", "limited", "asked"),
    [
        ({}, False, {"gpu": 1, "mem_mb": MEM_MB, "nodes": 1, "mpi": None, "tasks": None, "tasks_per_gpu": None}),
        ({"gpus": 2}, False, {"gpu": 2, "mem_mb": 2 * MEM_MB, "mpi": None}),
        ({"gpus": 2, "nodes": 2}, False, {"gpu": 4, "mem_mb": 2 * MEM_MB, "mpi": "srun", "tasks": 2, "tasks_per_gpu": 0}),
        ({"device": "cpu"}, False, {"gpu": None, "mem_mb": 8000}),
        ({"device": "cpu"}, True, {"gpu": 1, "mem_mb": MEM_MB}),
    ],
)  # fmt: skip
def test_a_job_asks_for_what_its_cell_takes(given: dict, limited: bool, asked: dict) -> None:
    found = JobResources(Jobs(select(**given)), limited, False).on_gpus()
    assert {name: found[name](wildcards()) for name in asked} == asked


def test_cores_minutes_and_modules(tmp_path: Path) -> None:
    jobs = Jobs(select(gpus=2, ncu={"envmodules": ["nsight-compute"]}))
    mine = JobResources(jobs, False, True)
    assert mine.cores()(wildcards()) == 8 and mine.cores_of_one(wildcards()) == 4
    assert mine.modules("ncu") == ["nsight-compute"] and JobResources(jobs, False, False).modules("ncu") == []
    assert mine.light()["runtime"](None, 2) == 10 and mine.on_one_gpu(minutes=10)["gpu"](None) == 1
    plan = tmp_path / "plan.json"
    plan.write_text('{"estimate_s": 90}')
    assert mine.planned_minutes(None, SimpleNamespace(plan=str(plan)), 2) == 26
    plan.write_text("damaged")
    assert mine.planned_minutes(None, SimpleNamespace(plan=str(plan)), 1) == 120
    assert mine.planned_minutes(None, SimpleNamespace(plan=[]), 1) == 120


def test_words_of_commands_name_files() -> None:
    given = InputFiles(fromdict={"weights": "w.pt", "plan": "p.json"})
    assert command_lines.name_loaded(wildcards(), given) == ["--load", "w.pt", "--plan", "p.json"]
    assert command_lines.name_loaded(wildcards(), InputFiles(fromdict={"weights": []})) == []
    assert command_lines.name_outputs(wildcards(), OutputFiles(fromdict={"steps": "a.csv"})) == ["steps=a.csv"]
    both = InputFiles(fromdict={"weights": ["a.pt", "b.pt"]})
    words = command_lines.name_loaded_of_sides(["plain", "bf16"], both)
    assert words == ["--weights", "plain=a.pt", "--weights", "bf16=b.pt"]
    assert command_lines.name_loaded_of_sides([], InputFiles(fromdict={"weights": []})) == []
    assert command_lines.name_failing({"fail_on": "slower"}) == ["--fail-on", "slower"]


def test_source_files_are_relative_and_marked_in_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    run = select()
    own = SourceFiles(run.config, True, lambda path: f"local:{path}")
    (only,) = own.of_code("profzoo/experiments/interleaved_runs.py")
    assert only.endswith("profzoo/experiments/interleaved_runs.py") and not only.startswith("/")
    assert any(path.endswith("models/lstm.py") for path in own.of_model(wildcards()))
    of_module = SourceFiles(run.config, False, lambda path: f"local:{path}").of_model(wildcards(model="lstm@bf16"))
    assert of_module == [f"local:{path}" for path in own.of_model(wildcards())]


def test_the_inputs_of_a_cell_stand_for_all_that_its_measurement_depends_on() -> None:
    inputs = SourceFiles(select().config, True, str).of_model(wildcards(model="vgg19"))
    model = registry.shipped_models()["vgg19"]
    assert len(inputs) < 20 and import_graph.files_of_inputs(map(Path, inputs)) == registry.program_sources(model)


def test_files_of_extensions_are_inputs_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (rules := tmp_path / "lab" / "rules.yaml").write_text("[]\n")
    monkeypatch.setenv(extensions.PASSED, json.dumps([str(rules.parent)]))
    inputs = SourceFiles(select().config, True, str).of_code("workflow/scripts/tabulate_verdicts.py")
    shipped = import_graph.PROJECT / "profzoo/verdicts/rules/rules.yaml"
    assert {rules, shipped} <= {*map(Path.resolve, map(Path, inputs))}
