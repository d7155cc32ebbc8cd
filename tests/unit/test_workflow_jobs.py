"""profzoo.workflow: the texts that jobs go by, the inputs of ncu's rules, resources and words of commands."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError
from snakemake.iocontainers import InputFiles, OutputFiles

from profzoo.cell.plan_types import PlanOptions
from profzoo.errors import ConfigError
from profzoo.workflow import command_lines, constraints
from profzoo.workflow.jobs import Jobs
from profzoo.workflow.resources import MEM_MB, JobResources
from profzoo.workflow.section_set_jobs import SectionSetJobs
from profzoo.workflow.source_files import SourceFiles
from profzoo.workflow.user_errors import run_checked
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
    jobs = Jobs(select(gpus=2, settings={"lstm": {"gpus": 2, "batch": 5}}))
    found = text(jobs.describe_training(wildcards(phase="inference")))["cell"]
    assert (found["gpus"], found["window"], found["phase"], found["batch"]) == (1, 1, "train", 5)
    assert jobs.weights(wildcards(phase="inference")) == "<results>/lstm/weights.pt"
    assert jobs.weights(wildcards()) == []


def test_sides_take_turns_in_one_job() -> None:
    jobs = Jobs(select(baseline="plain", candidate=["bf16"], repeats=2))
    found = text(jobs.describe_turns(wildcards()))
    assert sorted(found["order"]) == ["bf16", "bf16", "plain", "plain"]
    assert found["sides"]["plain"] == found["cell"] != found["sides"]["bf16"]
    assert jobs.weights_of_sides(wildcards()) == []
    assert jobs.weights_of_sides(wildcards(phase="inference"))[0] == "<results>/lstm/weights.pt"


def test_trials_are_described_by_candidates_and_where_expectations_are() -> None:
    found = text(Jobs(select()).describe_trials(wildcards()))["trials"]
    assert found["order"] and {*found["order"]} == {*found["candidates"]}
    assert found["expected"] == "results/tables/trials.expected.json"
    without = Jobs(select(tool=["torch"]))
    assert without.expected_gains() == [] and text(without.describe_trials(wildcards()))["trials"]["expected"] == ""


def test_a_section_set_is_described_by_its_options_and_plan() -> None:
    shared = Jobs(select(ncu={"launches": "sampled"}))
    jobs = SectionSetJobs(shared)
    found = text(jobs.describe_section_set(wildcards(set="roofline")))
    assert found["set"] == "roofline" and found["options"]
    assert {*found["planned"]} == {
        "kernel_name",
        "launches",
        "replay",
        "budget",
        "sets",
        "selection",
        "error",
        "one_run",
    }
    assert text(jobs.describe_section_set(wildcards(set="launch")))["planned"] == {}
    assert text(jobs.describe_probe(wildcards(gpu="gpu", set="roofline")))["tool"] == "probe"
    peaks = json.loads(shared.describe_peaks())
    assert peaks["tool"] == "peaks" and peaks["cell"] == {"device": "auto"} and peaks["environment"] == []


def test_what_is_wrong_with_a_configuration_ends_a_run_in_one_line() -> None:
    def wrong(value: int) -> int:
        raise ConfigError(f"batch = {value}: too few")

    with pytest.raises(WorkflowError, match=r"^batch = 0: too few$"):
        run_checked(wrong, 0)


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


def test_a_plan_is_made_by_the_keys_of_their_type() -> None:
    jobs = SectionSetJobs(Jobs(select()))
    known = PlanOptions.__required_keys__ | PlanOptions.__optional_keys__
    assert set(jobs.plan_options(wildcards(set="roofline"))) == known
    assert jobs.plan_options(wildcards(set="launch")) == {}


def test_a_set_of_which_nobody_knows_the_cost_is_probed() -> None:
    own = {"mine": {"metrics": ["sm__never_measured.sum"]}}
    sets = section_sets(select(gpu="h100", ncu={"sets": own}))
    assert sets.probe(wildcards(set="roofline")) == []
    assert sets.metrics(wildcards(set="mine")) == ["sm__never_measured.sum"]
    assert sets.probe(wildcards(set="mine")) == [
        "<results>/peaks/h100.mine.probe.csv",
        "<results>/peaks/h100.mine.ncu-rep.json",
    ]


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
    known = select(baseline="plain", candidate=["bf16"]).sides
    both = InputFiles(fromdict={"weights": ["a.pt", "b.pt"]})
    assert command_lines.name_loaded_of_sides(known, both) == ["--weights", "plain=a.pt", "--weights", "bf16=b.pt"]
    assert command_lines.name_failing({"fail_on": "slower"}) == ["--fail-on", "slower"]


def test_wildcards_match_what_is_selected_and_nothing_else() -> None:
    assert constraints.match_any(["a.b", "c"]) == r"a\.b|c"
    assert constraints.match_several_gpus([]) == {"model": "no_cell", "phase": "train"}
    assert constraints.match_sampled_sets(["deep"]) == {"set": "deep", "phase": "train|inference"}
    assert constraints.match_timed_inside({"baseline": 20}) == {"phase": "train|inference"}


def test_source_files_are_relative_and_marked_in_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    run = select()
    own = SourceFiles(run.config, True, lambda path: f"local:{path}")
    assert any(
        path.endswith("profzoo/experiments/interleaved_runs.py")
        for path in own.of_code("profzoo/experiments/interleaved_runs.py")
    )
    assert any(path.endswith("models/lstm.py") for path in own.of_model(wildcards()))
    of_module = SourceFiles(run.config, False, lambda path: f"local:{path}").of_model(wildcards(model="lstm@bf16"))
    assert of_module == [f"local:{path}" for path in own.of_model(wildcards())]
