"""Only what depends on a change is made again."""

import os
import shutil
from pathlib import Path

import pytest

from tests import slow
from tests.workflow.project import COLLECTING, Project, models, rules

FIGURES = {"draw_step_time", "draw_latency", "draw_ranges", "draw_layers", "draw_overhead", "draw_top_kernels"}
CELL = {"time_training", "time_inference", "profile_torch"}
AFTER_EXPORT = {"tabulate", "tabulate_verdicts", "tabulate_plans", "write_report", *FIGURES}
TABULATED = {"tabulate_layers", "tabulate_latency", "tabulate_fusion", "tabulate_columns"}
OF_CELLS = {"tabulate_latency", "tabulate_columns"}
LAYERS = {"derive_across_tools", "tabulate_layers", "tabulate_fusion"}


def test_second_run_does_nothing_even_in_a_moved_folder_with_touched_files(built: Project) -> None:
    """Nothing that a job goes by holds the folder that the project lies in, or times of sources."""
    for path in ("models/lstm.py", "profzoo/harness/step/step_loop.py", "profzoo/tools/torch/tables.py"):
        os.utime(built.root / path)
    moved = built.root.parent / "moved"
    shutil.rmtree(moved, ignore_errors=True)
    built.root.rename(moved)
    try:
        assert Project(moved).dry("all") == []
    finally:
        moved.rename(built.root)


def test_model_file_concerns_that_model(built: Project) -> None:
    built.write("models/unet.py", built.read("models/unet.py") + "\n# changed\n")
    jobs = built.dry("all")
    assert models(jobs) == {"unet"}
    assert rules(jobs) == {*CELL, "tabulate_latency", "derive_from_torch", *LAYERS, *AFTER_EXPORT}


@pytest.mark.slow
def test_what_models_of_a_task_share_concerns_those(built: Project) -> None:
    path = "profzoo/harness/tasks/segmentation.py"
    built.write(path, built.read(path) + "\n# changed\n")
    assert models(built.dry("all")) == {"unet"}


@pytest.mark.slow
def test_changed_model_is_made_again_and_then_done(built: Project, recorded: Path) -> None:
    built.recording = recorded
    before = {path: (built.root / "results" / path).stat().st_mtime_ns for path in built.files()}
    built.write("models/unet.py", built.read("models/unet.py") + "\n# changed\n")
    built.snakemake("all")
    remade = {path for path in built.files() if (built.root / "results" / path).stat().st_mtime_ns != before[path]}
    assert {path.split("/")[0] for path in remade} == {"unet", "tables", "figures", "report.html"}
    assert built.dry("all") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "concerned"),
    [
        ("{sequence_length: 8}", "{sequence_length: 8, features: 64, hidden: 300}", {"lstm"}),
        ("warmup: 1\ntime: {window: 2}", "warmup: 2\ntime: {window: 1}", {"lstm", "unet"}),
    ],
)
def test_swapped_settings_are_others(built: Project, old: str, new: str, concerned: set[str]) -> None:
    """Snakemake compares a job's values as a set without names."""
    built.replace("tiny.yaml", old, new)
    jobs = built.dry("all")
    assert models(jobs) == concerned and rules(jobs) >= CELL


@pytest.mark.parametrize(
    ("schema", "old", "new", "expected"),
    slow.first(
        [
            pytest.param(
                "profzoo/cell/schema.yaml",
                "sampling.\n      type: integer\n      minimum: 0\n      maximum: 4294967295\n      default: 0",
                "sampling.\n      type: integer\n      minimum: 0\n      maximum: 4294967295\n      default: 1",
                {*CELL, "tabulate_latency", "derive_from_torch", *LAYERS, *AFTER_EXPORT},
                id="seed",
            ),
            pytest.param(
                "profzoo/tools/torch/schema.yaml",
                "group operators by them.\n    type: boolean\n    default: true",
                "group operators by them.\n    type: boolean\n    default: false",
                {"profile_torch", "derive_from_torch", *LAYERS, *AFTER_EXPORT},
                id="torch.shapes",
            ),
            pytest.param(
                "profzoo/cell/schema.yaml",
                "default: 15",
                "default: 10",
                {"draw_top_kernels", "write_report"},
                id="figures.top",
            ),
        ]
    ),
)
def test_changed_default_in_the_schema(built: Project, schema: str, old: str, new: str, expected: set[str]) -> None:
    built.replace(schema, old, new)
    assert rules(built.dry("all")) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    slow.first(
        [
            ("profzoo/figures/step_time.py", {"draw_step_time", "write_report"}),
            ("profzoo/figures/plots.py", {*FIGURES, "write_report"}),
            ("profzoo/report/page.py", {"write_report"}),
            ("profzoo/tables/across_cells.py", {*OF_CELLS, "tabulate_layers", *AFTER_EXPORT}),
            ("profzoo/tables/cell_tables.py", {*TABULATED, *AFTER_EXPORT}),
            ("profzoo/tools/torch/tables.py", {"derive_from_torch", *OF_CELLS, *LAYERS, *AFTER_EXPORT}),
            ("profzoo/formatting.py", {*AFTER_EXPORT, *TABULATED}),
            ("profzoo/tables/kernel_table.py", {*TABULATED, *AFTER_EXPORT}),
            ("profzoo/io/scripts.py", {"derive_from_torch", *OF_CELLS, *LAYERS, *AFTER_EXPORT}),
        ]
    ),
)
def test_changed_source_concerns_what_imports_it(built: Project, path: str, expected: set[str]) -> None:
    built.write(path, built.read(path) + "\n# changed\n")
    jobs = built.dry("all")
    assert rules(jobs) == expected
    assert not rules(jobs) & COLLECTING


def test_another_set_or_parser_of_ncu_collects_nothing_that_exists(ncu_built: Project) -> None:
    targets = ["results/lstm/train.ncu.csv", "results/lstm/train.ncu-details.csv"]
    jobs = ncu_built.dry(*targets, "--config", "ncu={set: roofline}")
    assert rules(jobs) == {"select_ncu", "print_ncu_details"}
    path = "profzoo/tools/ncu/raw_page.py"
    ncu_built.write(path, ncu_built.read(path) + "\n# changed\n")
    jobs = ncu_built.dry("results/lstm/train.ncu.csv", "results/lstm/train.ncu.roofline.csv")
    # What was profiled is neither planned nor profiled again.
    assert rules(jobs) == {"print_ncu", "print_ncu_sampled", "export_ncu", "select_ncu"}


@pytest.mark.slow
def test_a_longer_timing_concerns_the_timings_alone(built: Project, recorded: Path) -> None:
    built.replace("tiny.yaml", "time: {window: 2}", "time: {window: 3}")
    jobs = built.dry("all")
    collecting = sorted((job.rule, job.model) for job in jobs if job.rule in COLLECTING)
    assert collecting == [(rule, model) for rule in ("time_inference", "time_training") for model in ("lstm", "unet")]
    built.recording = recorded
    built.snakemake(
        *(f"results/{model}/{phase}.time.csv" for model in ("lstm", "unet") for phase in ("train", "inference"))
    )
    assert not rules(built.dry("all")) & COLLECTING


@pytest.mark.slow
@pytest.mark.parametrize("change", ["batch: 2", "precision: bf16", "seed: 1", "gpus: 2"])
def test_settings_of_a_model_concern_what_they_are_used_for(built: Project, change: str) -> None:
    built.replace("tiny.yaml", "lstm: {sequence_length: 8}", f"lstm: {{sequence_length: 8, {change}}}")
    planned = built.dry("all")
    assert models(planned) == {"lstm"}
    jobs = [job for job in planned if job.rule in {*COLLECTING, "profile_torch_ranks"}]
    wanted = ["profile_torch_ranks", "time_training"] if "gpus" in change else [*CELL, "profile_torch"]
    assert sorted(job.rule for job in jobs) == sorted(wanted)


def test_variants_start_with_the_weights_of_the_model_unless_they_are_another_network(built: Project) -> None:
    cells = [f"results/lstm@{name}/inference.time.csv" for name in ("bf16", "bf16+channels_last", "wide")]
    jobs = built.dry(*cells, "--config", "weights=trained", "variants={wide: {hidden: 128}}")
    assert sorted(job.model for job in jobs if job.rule == "train_weights") == ["lstm", "lstm@wide"]
    assert sum(job.rule == "time_inference" for job in jobs) == 3
    assert rules(built.dry(*cells, "--config", "variants={wide: {hidden: 128}}")) == {"time_inference"}


@pytest.mark.slow
def test_trained_weights_concern_the_inference_of_the_model_that_asks_for_them(built: Project) -> None:
    jobs = [
        job for job in built.dry("all", "--config", "settings={lstm: {weights: trained}}") if job.rule in COLLECTING
    ]
    wanted = ["profile_torch", "time_inference", "train_weights"]
    assert sorted(job.rule for job in jobs) == wanted and models(jobs) == {"lstm"}


@pytest.mark.slow
def test_another_selection_of_launches_collects_again(ncu_built: Project) -> None:
    ncu_built.replace("profzoo/tools/ncu/command.py", '"--launch-count", "1",', '"--launch-count", "2",')
    jobs = ncu_built.dry("results/lstm/train.ncu.csv", "results/lstm/train.ncu.roofline.csv")
    assert {"settle_ncu", "plan_ncu", "profile_ncu_sampled", "print_ncu_sampled", "export_ncu"} <= rules(jobs)
    # The census takes every launch, as ever.
    assert "profile_ncu" not in rules(jobs)


@pytest.mark.slow
def test_a_changed_model_is_collected_again_with_every_set(ncu_built: Project) -> None:
    """Whatever else is made again in the same run: the census, from which a plan is made again."""
    ncu_built.write("models/lstm.py", ncu_built.read("models/lstm.py") + "\n# changed\n")
    jobs = ncu_built.dry("results/lstm/train.ncu.csv", "results/lstm/train.ncu.roofline.csv")
    assert {"profile_ncu", "profile_ncu_sampled"} <= rules(jobs)


@pytest.mark.slow
def test_a_changed_parser_hides_no_changed_setting(ncu_built: Project) -> None:
    path = "profzoo/tools/ncu/raw_page.py"
    ncu_built.write(path, ncu_built.read(path) + "\n# changed\n")
    targets = ["results/lstm/train.ncu.csv", "results/lstm/train.ncu.roofline.csv"]
    jobs = ncu_built.dry(*targets, "--config", "ncu={budget: 20s}")
    assert "profile_ncu_sampled" in rules(jobs) and "profile_ncu" not in rules(jobs)


@pytest.mark.slow
def test_a_figure_of_which_none_is_drawn_concerns_nothing(built: Project) -> None:
    path = "profzoo/figures/roofline.py"
    built.write(path, built.read(path) + "\n# changed\n")
    assert built.dry("all") == []
