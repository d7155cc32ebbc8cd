"""What the command line configures is taken strictly: a mistake ends the run in one line before any job."""

import pytest
import yaml
from snakemake.cli import parse_config

from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from tests import slow
from tests.workflow.project import TINY, Project, models, rules

UNKNOWN_TARGETS = [
    ("results/lsmt/train.torch.csv", "unknown model 'lsmt'; did you mean 'lstm'?"),
    ("results/lstm@bf61/train.torch.csv", "unknown variant 'bf61'; did you mean 'bf16'?"),
    ("results/lstm/trian.torch.csv", "unknown phase 'trian'; did you mean 'train'?"),
    ("results/lstm/train.trch.csv", "no tool, section set or file 'trch'; did you mean 'torch'?"),
    ("results/lstm/train.ncu.rooflin.csv", "no tool, section set or file 'rooflin'; did you mean 'roofline'?"),
]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("toool=nsys", "unknown key 'toool' (value 'nsys'): did you mean 'tool'?"),
        ("torch={windw: 2}", "unknown key 'torch.windw' (value '2'): did you mean 'window'?"),
        ("settings={lstm: {hiden: 3}}", "unknown key 'settings.lstm.hiden' (value '3'): did you mean 'hidden'?"),
        ("settings={lsmt: {batch: 1}}", "unknown model 'lsmt': did you mean 'lstm'?"),
        ("warmup=many", "warmup = 'many' is a string, not integer"),
        ("warmup=-1", "warmup = -1 is too small: at least 0"),
        ("compile=reduce_overhead", "compile = 'reduce_overhead': did you mean 'reduce-overhead'?"),
        ("tool=nsyss", "tool.0 = 'nsyss': did you mean 'nsys'?"),
        ("tool=ncu,torhc", "tool.1 = 'torhc': did you mean 'torch'?"),
        ("phases=trian", "phases.0 = 'trian': did you mean 'train'?"),
        ("models=lsmt", "models = 'lsmt': no model or group of that name; did you mean 'lstm'?"),
        ("models=lstm@bf61", "models = 'lstm@bf61': no variant 'bf61'; did you mean 'bf16'?"),
        ("ncu={set: rooflin}", "ncu.set = 'rooflin': did you mean 'roofline'?"),
        ("nsys={reports: [osrt_sun]}", "nsys.reports holds 'osrt_sun': did you mean 'osrt_sum'?"),
    ],
)
def test_a_mistake_is_one_line(given: str, line: str) -> None:
    """As the workflow goes through what the command line gives, before any job."""
    with pytest.raises(ConfigError) as error:
        checked = configuration.normalise_config(yaml.safe_load(TINY) | parse_config([given]))
        for model, phase in configuration.select_cells(checked):
            settings.resolve_cell(model, phase, "time", checked)
    assert str(error.value) == line


@pytest.mark.parametrize(("target", "words"), UNKNOWN_TARGETS)
def test_an_unknown_target_names_the_nearest(target: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        configuration.check_targets(
            [target, "--cores", "1"], "results", configuration.normalise_config(yaml.safe_load(TINY))
        )
    assert str(error.value) == f"target '{target}': {words}"


@pytest.mark.parametrize(
    ("asked", "line"),
    slow.first(
        [
            (
                ["results/peaks/-rf.csv"],
                "target 'results/peaks/-rf.csv': '-rf' is not a valid name of a GPU: letters, digits, `_` and "
                "`-`, at most 64, the first a letter or `_`, and no word such as `null`, `true` or `nan` that is read as "
                "something else",
            ),
            (["all", "--config", "batch=1e5"], "batch = 100000.0 is a number, not integer or string or null"),
            (["all", "--config", "toool=nsys"], "unknown key 'toool' (value 'nsys'): did you mean 'tool'?"),
            ([UNKNOWN_TARGETS[0][0]], f"target '{UNKNOWN_TARGETS[0][0]}': {UNKNOWN_TARGETS[0][1]}"),
        ]
    ),
)
def test_snakemake_ends_with_that_line_and_makes_nothing(untouched: Project, asked: list[str], line: str) -> None:
    run = untouched.snakemake(*asked, ok=False)
    printed = run.stdout + run.stderr
    assert run.returncode != 0
    assert printed.splitlines().count(line) == 1, printed
    assert "Traceback" not in printed
    assert not untouched.files()


@pytest.mark.parametrize(
    ("tool", "profiling", "chosen", "expected"),
    slow.first(
        [
            ("ncu,nsys", {"profile_ncu", "profile_nsys"}, "unet,lstm@bf16", {"unet", "lstm@bf16"}),
            ("time", set(), "{unet: {batch: 2}}", {"unet"}),
            ("[ncu, torch]", {"profile_ncu", "profile_torch"}, "adversarial", {"dped", "spade", "srgan"}),
            ("nsys", {"profile_nsys"}, "lstm", {"lstm"}),
        ]
    ),
)
def test_tools_and_models_on_the_command_line(
    untouched: Project, tool: str, profiling: set[str], chosen: str, expected: set[str]
) -> None:
    jobs = untouched.dry("all", "--config", f"tool={tool}", f"models={chosen}")
    assert {rule for rule in rules(jobs) if rule.startswith("profile_")} == profiling
    assert models(jobs) == expected and "time_training" in rules(jobs)


def test_strings_take_their_types(untouched: Project) -> None:
    given = {
        "compile=true": '"compile": true',
        "warmup=4": '"warmup": 4',
        "data={source: synthetic, root: null}": '"root": null',
        "precision=bf16": '"precision": "bf16"',
    }
    given["settings={lstm: {data: {arguments: {train: false}}}}"] = '"arguments": {"train": false}'
    target = "results/lstm/train.time.csv"
    printed = untouched.snakemake(target, "--dry-run", "--printshellcmds", "--config", *given).stdout
    assert all(text in printed for text in given.values())


@pytest.mark.slow
def test_files_that_look_like_something_else_end_the_run_before_they_are_read(fresh: Project) -> None:
    """A user's, and the one that the workflow names, of which a few lines may stand for more than memory holds."""
    fresh.write("tiny.yaml", f"{TINY}warmup: 2\n")
    run = fresh.snakemake("all", ok=False)
    line = "tiny.yaml, line 11: warmup: 'warmup' was given in line 4 already, which is lost: keep one of them"
    assert run.returncode != 0 and line in (run.stdout + run.stderr).splitlines(), run.stderr
    fresh.write("tiny.yaml", TINY)
    # Merged, they would be of 9 ** 29 keys.
    bomb = "".join(f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(9))}}}\n" for n in range(1, 30))
    fresh.write("config/config.yaml", f"a0: &a0 {{x: 1}}\n{bomb}")
    run = fresh.snakemake("all", ok=False)
    line = "config/config.yaml: its aliases (*name) stand for more than 100000 values: write less"
    assert run.returncode != 0 and line in (run.stdout + run.stderr).splitlines(), run.stderr
    assert not fresh.files()
