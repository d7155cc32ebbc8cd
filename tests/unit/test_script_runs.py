"""script_harness: what is a step of each script, what it did in its window, and what is said where there is none."""

import gzip
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import nn
from torch.utils.data import DataLoader

from profzoo import run
from profzoo.cli import advise
from profzoo.collect import failures
from profzoo.compare import numeric_checks, numerics
from profzoo.errors import CollectError
from profzoo.harness import observed_files
from profzoo.records import read_files
from profzoo.records.import_graph import PROJECT
from profzoo.script_harness import launcher, origins, outside_settings, task
from tests import slow

SCRIPTS = PROJECT / "tests" / "scripts"
# Name of a case: the words of its command behind `python`, and the settings.
CASES: dict[str, tuple[str, str]] = {
    "loop": ("loop.py --workers 2", "window=5"),
    "restarts": ("loop.py --workers 2", "window=20"),
    "accumulation": ("loop.py --accumulate 3 --functional", "window=4"),
    "scaler": ("loop.py --scaler", "window=4"),
    "overflow": ("loop.py --scaler --overflow-in 6", "window=5"),
    "two optimizers": ("adversarial.py", "window=4"),
    "generation": ("generate.py", "window=12 phase=inference"),
    "diffusion": ("sampling.py", "window=25 phase=inference"),
    "trainer": ("trainer.py", "window=10"),
    "range": ("trainer.py", "window=10 step=range:iteration"),
    "dataloader": ("loop.py", "window=5 step=dataloader"),
    "module": ("loop.py", "window=5 step=module:2.0"),
    "compiled": ("loop.py --compile eager", "window=4"),
    "settings": ("loop.py", "window=4 precision=bf16 workers=2 optimizer=foreach channels_last=true"),
    "all settings": ("loop.py", "window=4 precision=bf16 workers=2 optimizer=foreach channels_last=true compile=true"),
    "finished": ("loop.py", "window=4 finish=true"),
    "crash": ("loop.py --crash-in 5", "window=5"),
    "short": ("loop.py --epochs 1", "window=50"),
    "never steps": ("never_steps.py", "window=5"),
    "repeated": ("repeated.py", "window=4"),
    "ends in its window": ("loop.py --end over", "window=5"),
    "ends with its window": ("loop.py --end over", "window=24"),
}
# Cases whose windows last for a time that the script does not have.
LASTING = ("ends in its window",)
# Cases of which memory is taken stock, which takes longer than the steps of most scripts.
STOCKED = ("loop", "ends with its window")
# Forms of loops, in each of which a step has twelve samples.
FORMS = ("transformer", "recurrent", "packed", "batch first", "inside", "collated", "sequences alone", "search",
         "accumulation", "no optimizer")  # fmt: skip
CASES |= {f"samples: {form}": (f"samples.py '{form}'", "window=4") for form in (*FORMS, "compiled")}
# Cases of slow tests.
RARE = ("range", "module", "all settings")
OFTEN = ("transformer", "batch first", "search", "no optimizer")
LEFT_OUT = {*RARE, *(f"samples: {form}" for form in FORMS if form not in OFTEN)}
ONE_EACH = {"batches": 1, "forward calls": 1, "backward passes": 1, "optimizer steps": 1}


def cell_of(command: str, settings: str) -> dict[str, Any]:
    phase = "inference" if "phase=inference" in settings else "train"
    return dict(run.resolve_words("mine", phase, "time", [f"command={command}", *settings.split()]))


def run_cases(folder: Path, names: Iterable[str], known: Mapping[str, tuple[str, str]] = CASES) -> Mapping[str, Any]:
    """What each of the known cases came to: its facts, or what is said instead; and its steps under `NAME steps`."""
    cases, cells = [], {}
    for name in names:
        words, settings = known[name]
        (own := folder / name).mkdir()
        cells[name] = cell_of(f"python {SCRIPTS / words.split()[0]}", settings)
        files = {"steps": own / "s.csv"} | ({"memory": own / "m.csv"} if name in STOCKED else {})
        lasts = 60.0 if name in LASTING else 0.0
        task.Task(cells[name], launcher.setting_defaults(), own, files, lasts).write(own / "task.json")
        script, *more = shlex.split(words)
        cases.append({"words": [str(SCRIPTS / script), *more], "task": str(own / "task.json")})
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-m", "tests.script_zygote", str(folder / "cases.json"), str(folder / "codes.json")]
    with (folder / "printed").open("w") as printed:
        subprocess.run(command, cwd=PROJECT, check=True, stdout=printed, stderr=printed)
    results: dict[str, Any] = {"printed": (folder / "printed").read_text()}
    for name, code in zip(cells, json.loads((folder / "codes.json").read_text()), strict=True):
        try:
            results[name] = launcher.gather_facts(folder / name, cells[name], code)
            results[f"{name} steps"] = (folder / name / "s.csv").read_text().splitlines()
        except CollectError as error:
            results[name] = str(error)
    return results | {"memory": folder / "loop" / "m.csv"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return run_cases(tmp_path_factory.mktemp("scripts"), [name for name in CASES if name not in LEFT_OUT])


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return run_cases(tmp_path_factory.mktemp("rare"), [name for name in CASES if name in LEFT_OUT])


@pytest.mark.parametrize(
    ("name", "step", "per_step", "items", "steps"),
    [
        ("loop", "a step of SGD", ONE_EACH, 40, 5),
        ("accumulation", "a step of SGD", {"batches": 3, "forward calls": 3, "backward passes": 3, "optimizer steps": 1}, 96, 4),
        ("scaler", "a step of SGD", ONE_EACH, 32, 4),
        ("two optimizers", "a step of Adam", {"forward calls": 11, "backward passes": 4, "optimizer steps": 4}, 32, 4),
        ("generation", "a call of Decoder", {"forward calls": 1}, 24, 12),
        # Two images with and without their text.
        ("diffusion", "a call of UNet", {"forward calls": 1}, 100, 25),
        ("dataloader", "the next batch", ONE_EACH, 40, 5),
        ("compiled", "a step of SGD", ONE_EACH, 32, 4),
    ],
)  # fmt: skip
def test_a_step_is_what_the_script_repeats(
    found: Mapping[str, Any], name: str, step: str, per_step: Mapping[str, int], items: int, steps: int
) -> None:
    facts = found[name]
    script = facts["script"]
    assert (script["step"], script["per_step"]) == (step, per_step), facts
    assert (facts["items"], facts["steps"], len(found[f"{name} steps"])) == (items, steps, steps + 1)
    # The rest calls the encoder of the next sentence, or the decoder of one image and the encoder of another.
    assert script["regular_share"] == {"generation": pytest.approx(10 / 12), "diffusion": 24 / 25}.get(name, 1)


@pytest.mark.parametrize("form", slow.only(FORMS, *OFTEN))
def test_samples_are_counted_once_whichever_dimension_they_are(request: pytest.FixtureRequest, form: str) -> None:
    """A sequence of torch's has its batch second unless it says otherwise, and a line search computes a batch again."""
    found = request.getfixturevalue("found" if form in OFTEN else "rare")
    facts = found[f"samples: {form}"]
    assert (facts["batch"], facts["items"]) == (12, 48), facts["script"]
    assert [line.split(",")[3] for line in found[f"samples: {form} steps"][1:]] == ["12"] * 4


def test_samples_are_empty_where_nobody_knows_their_dimension(found: Mapping[str, Any]) -> None:
    """Within a compiled network it is not seen which dimension its sequences have first."""
    facts = found["samples: compiled"]
    assert (facts["batch"], facts["items"]) == (None, None)
    assert [line.split(",")[3] for line in found["samples: compiled steps"][1:]] == [""] * 4
    facts = {**facts, "step_ns": 1e6}
    assert "samples of a step not known" in dict(advise.describe_run(facts))["takes"]


def test_a_closure_and_an_evaluation_are_no_steps_of_their_own(found: Mapping[str, Any]) -> None:
    """Two of ten steps evaluate before them, whose batches are not samples of training."""
    facts = found["trainer"]
    assert facts["script"]["per_step"] == ONE_EACH and facts["script"]["regular_share"] == 0.8
    assert (facts["items"], facts["batch"]) == (40, 4)


@pytest.mark.slow
def test_steps_of_ranges_and_modules_and_a_compiled_script(rare: Mapping[str, Any]) -> None:
    ranged, called, settings = (rare[name]["script"] for name in RARE)
    assert (ranged["step"], ranged["per_step"], ranged["regular_share"]) == ("the range iteration", ONE_EACH, 0.8)
    assert (called["step"], called["per_step"], called["regular_share"]) == ("a call of 2.0", ONE_EACH, 1)
    assert [(rare[name]["items"], rare[name]["steps"]) for name in RARE[:2]] == [(40, 10), (40, 5)]
    assert settings["applied"] == {**APPLIED, "compile": True} and settings["observed"]["compile"]


def test_what_a_gradient_scaler_skips_is_a_step_and_the_loss_is_the_last_one_unscaled(found: Mapping[str, Any]) -> None:
    """The same batches by the same seed: with a scaler the loss is the same."""
    skipped, scaled = found["overflow"], found["scaler"]
    assert skipped["steps"] == 5 and skipped["script"]["per_step"] == ONE_EACH
    assert (skipped["script"]["skipped_updates"], scaled["script"]["skipped_updates"]) == (1, 0)
    assert scaled["loss"] == pytest.approx(found["compiled"]["loss"], rel=1e-5) and 0.5 < scaled["loss"] < 3


APPLIED = {"precision": "bf16", "workers": 2, "optimizer": "foreach", "channels_last": True}


def test_settings_are_applied_from_outside(found: Mapping[str, Any]) -> None:
    script = found["settings"]["script"]
    assert script["applied"] == APPLIED and script["observed"]["precision"] == "bf16"
    assert found["loop"]["script"]["applied"] == {} and found["loop"]["script"]["observed"]["precision"] == "fp32"
    assert found["compiled"]["script"]["observed"]["compile"] and not found["loop"]["script"]["observed"]["compile"]


def lines_of(name: str, *texts: str) -> set[str]:
    """The places of the lines of a script that hold these texts."""
    written = (SCRIPTS / name).read_text().splitlines()
    return {f"{name}:{number}" for number, line in enumerate(written, 1) if any(text in line for text in texts)}


@pytest.mark.parametrize(
    ("case", "file", "texts", "optimizers"),
    [
        # A loader that nothing holds but its iterator.
        ("loop", "loop.py", ["model = nn.Seq", "optimizer = torch", "DataLoader(data", "outputs = model("], ["SGD"]),
        # Of the evaluation, which comes first, the call is another one, as it is of no step.
        ("trainer", "trainer.py", ["Trainer(Hashed(", "AdamW(", "(self.model(batch"], ["AdamW"]),
        ("two optimizers", "adversarial.py", ["generator, critic =", "make, judge =", "(critic(generator("], ["Adam", "RMSprop"]),
    ],
)  # fmt: skip
def test_the_lines_that_make_what_a_loop_uses_are_known(
    found: Mapping[str, Any], case: str, file: str, texts: list[str], optimizers: list[str]
) -> None:
    made = found[case]["script"]["made"]
    assert {f"{Path(one['file']).name}:{one['line']}" for one in made} == lines_of(file, *texts), made
    assert sorted(one["name"] for one in made if one["kind"] == "optimizer") == optimizers
    kinds = {one["kind"] for one in made}
    assert kinds == {"model", "optimizer", "call"} | ({"loader"} if case != "two optimizers" else set())


def test_what_a_package_makes_for_itself_has_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it makes for the script has the line of the script: a network that it asks for, a loader made anew of its own."""
    (site := tmp_path / "site-packages" / "packaged").mkdir(parents=True)
    (site / "__init__.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "def make(note):\n    net = Net.__new__(Net)\n    note('model', net)\n    note('optimizer', held := set_of())\n"
        "    return net, held\nclass set_of: pass\n"
        "def remake(note, loader):\n    made = type(loader)(loader.dataset)\n    note('loader', made)\n    return made\n"
    )
    monkeypatch.syspath_prepend(str(site.parent))
    known = origins.Origins()
    library = importlib.import_module("packaged")
    net, optimizer = library.make(lambda kind, one: known.note(kind, one, sys._getframe(1)))
    (model,) = known.describe([net], [optimizer])
    assert (model["kind"], Path(model["file"]).name) == ("model", Path(__file__).name)
    own, another = DataLoader([1, 2]), DataLoader([1, 2])
    known.note("loader", own, sys._getframe())
    for loader in (own, another):
        made = library.remake(lambda kind, one: known.note(kind, one, sys._getframe(1)), loader)
        known.note_loader(made)
        known.note_batch(made)
        assert [one["kind"] for one in known.describe([], [])] == ["loader"]
        assert sum(known._batches.values()) == 1


def test_a_loader_is_seen_with_its_workers_whoever_set_them(found: Mapping[str, Any]) -> None:
    for name, workers in (("loop", 2), ("settings", 2), ("compiled", 0)):
        noted = found[name]["loading"]
        assert (noted["workers"], noted["pin_memory"]) == (workers, False) and found[name]["cores"] > 0


def test_workers_that_start_in_each_epoch_are_noted_with_their_time(found: Mapping[str, Any]) -> None:
    """The window of 20 steps begins in the first of three epochs of nine steps, and the loader starts workers twice."""
    noted, seconds = found["restarts"]["loading"], found["restarts"]["window_wall_ns"] / 1e9
    assert noted["worker_starts"] == 2 and 0.2 * seconds < noted["starting_s"] + noted["first_batches_s"] < seconds
    # A window without the end of an epoch has none.
    assert "worker_starts" not in found["loop"]["loading"]


def test_a_loader_with_workers_takes_what_is_set_of_them() -> None:
    asked = {"workers": 0, "prefetch_factor": 3, "persistent_workers": True}
    settings = outside_settings.OutsideSettings(
        asked, {"workers": 0, "prefetch_factor": None, "persistent_workers": None}
    )
    of_workers = {"prefetch_factor": 3, "persistent_workers": True}
    for own, added in (({}, {}), ({"num_workers": 0}, {}), ({"num_workers": 2, "prefetch_factor": 5}, of_workers)):
        assert settings.apply_to_loader(own) == {**own, **added}


@pytest.mark.parametrize(("asked", "mode"), [(True, None), ("max-autotune", "max-autotune")])
def test_a_network_is_compiled_once_in_the_mode_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: Any, mode: str | None
) -> None:
    said, applied = [], outside_settings.OutsideSettings({"compile": asked}, {"compile": False})
    monkeypatch.setattr(nn.Module, "compile", lambda module, **given: said.append(given))
    applied.apply_to_network(network := nn.Linear(1, 1))
    network._compiled_call_impl = print
    applied.apply_to_network(network)
    outside_settings.OutsideSettings({"compile": False}, {"compile": False}).apply_to_network(nn.Linear(1, 1))
    assert said == [{"mode": mode}]


def test_a_script_ends_after_its_window_unless_it_is_to_finish(found: Mapping[str, Any]) -> None:
    assert found["finished"]["steps"] == 4 and found["printed"].count("done") == 2  # With `short`, which ends before.


def test_memory_of_a_step_more_is_by_purpose(found: Mapping[str, Any]) -> None:
    rows = pd.read_csv(found["memory"])
    by_range = rows[rows["module"].isna()].drop_duplicates("range", keep="last").set_index("range")
    weights = 4 * found["loop"]["parameters"]
    assert by_range.loc["step", "weights_bytes"] == weights
    assert by_range.loc["optimizer", "gradients_bytes"] >= 0
    assert by_range.loc["backward", "gradients_bytes"] == weights


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crash", "mine train: the script failed in step 5 with ValueError: the fifth wheel came off"),
        ("short", "mine train: the command ended after 9 steps, and warm-up and window take 3 + 50: lower warmup"),
        ("ends with its window", "mine train: the command ended after 27 steps, before its window was over: have"),
        ("never steps", "mine train: no step was found until the command ended, after 0 steps of 1 optimizer and"),
    ],
)
def test_a_script_without_a_window_says_why(found: Mapping[str, Any], name: str, said: str) -> None:
    assert found[name].startswith(said) and "\n" not in found[name]


def test_a_window_that_has_its_steps_closes_when_the_script_ends(found: Mapping[str, Any]) -> None:
    """It was to last for a minute, and has all steps behind the warm-up; what follows the last one is no part of it."""
    facts, steps = found["ends in its window"], found["ends in its window steps"][1:]
    assert (facts["steps"], facts["items"], len(steps)) == (24, 8 * 24, 24), facts
    assert facts["script"]["step"] == "a step of SGD"


def start(
    words: str, settings: str, folder: Path, files: str = "--steps steps.csv"
) -> subprocess.CompletedProcess[str]:
    """The real command, through Python's start-up hook."""
    command = [sys.executable, "-m", "profzoo.run", "mine", "inference" if "inference" in settings else "train"]
    command += [f"command={words}", *settings.split(), "--facts", "facts.json", *files.split()]
    environment = os.environ | {"PYTHONPATH": f"{PROJECT}:{folder / 'site'}", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_command_is_followed_from_the_start_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package and a sitecustomize of the script's own are found; what it imports is noted."""
    (tmp_path / "models.py").write_text("WIDTH = 5\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.SITE = 8\n")
    text = (SCRIPTS / "serve.py").read_text().replace("nn.Linear(6, 2)", "nn.Linear(6, models.WIDTH * SITE)")
    (tmp_path / "serve.py").write_text(f"import sys\nsys.path.append('.')\nimport models\n{text}")
    (notes := tmp_path / "making" / "notes").mkdir(parents=True)
    monkeypatch.setenv(observed_files.NOTES, str(notes))
    done = start("python serve.py", "phase=inference window=20", tmp_path)
    assert done.returncode == 0, done.stderr
    seen = read_files.read_notes(notes).files()
    assert {str(tmp_path / name) for name in ("models.py", "serve.py", "site/sitecustomize.py")} <= seen
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["parameters"] == 6 * 6 + 6 + 6 * 40 + 40 and facts["script"]["step"] == "a call of Sequential"
    assert facts["items"] == 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "network", "parameters", "optimizer"),
    [("ranks.py", "Linear", 18, "SGD"), ("fully_sharded.py", "Sequential", 4 * 16 * 32 + 2 * (16 + 32), "AdamW")],
)
def test_processes_of_torchrun_are_one_cell(
    tmp_path: Path, name: str, network: str, parameters: int, optimizer: str
) -> None:
    """Of a sharded network the parameters are those of all processes, and its class is the one that was sharded.

    All of them take the step in which one looks at memory.
    """
    command, files = (
        f"torchrun --standalone --nproc-per-node=2 {SCRIPTS / name}",
        "--steps steps.csv --memory memory.csv",
    )
    done = start(command, "window=5", tmp_path, files)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert [one["rank"] for one in facts["ranks"]] == [0, 1] and facts["steps"] == 5
    assert (facts["script"]["networks"], facts["parameters"]) == ([network], parameters)
    once = {"forward calls": 1, "backward passes": 1, "optimizer steps": 1}
    assert (facts["script"]["step"], facts["script"]["per_step"]) == (f"a step of {optimizer}", once)
    assert (facts["batch"], facts["script"]["regular_share"]) == (4, 1)


def test_a_step_that_ends_with_a_call_of_its_network_is_traced(tmp_path: Path) -> None:
    """The profiler starts within the range of a call that it has not seen begin."""
    files = "--trace trace.json.gz --operators operators.csv"
    done = start(f"python {SCRIPTS / 'generate.py'}", "window=3 phase=inference", tmp_path, files)
    assert done.returncode == 0, done.stderr
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    ranges = ("step", "forward", "module:Decoder:Decoder", "module:Decoder.head:Linear")
    assert [names.count(f"profzoo:{name}") for name in ranges] == [3] * 4


def test_an_engine_that_a_server_spawns_is_measured_and_the_server_ended(tmp_path: Path) -> None:
    """It would wait for the engine's answer for ever."""
    done = start(f"python {SCRIPTS / 'engine.py'} spawn", "window=20 phase=inference", tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["script"]["step"], facts["script"]["per_step"]) == ("a call of Decoder", {"forward calls": 1})
    assert (facts["batch"], facts["items"], facts["steps"]) == (5, 100, 20)
    places = {f"{Path(one['file']).name}:{one['line']}" for one in facts["script"]["made"]}
    assert places == lines_of("engine.py", "model = Decoder()", "= model(words")


@pytest.mark.slow
def test_of_an_engine_that_a_server_forks_it_is_said_that_it_is_to_be_spawned(tmp_path: Path) -> None:
    done = start(f"python {SCRIPTS / 'engine.py'} fork", "window=20 phase=inference", tmp_path)
    assert done.returncode == 2 and "the script forked a process that calls Decoder, and only processes" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('no torch')", "the command ended before any of its Python processes"),
        # The start-up hook, which imports nothing of profzoo, leaves its note where the launcher looks for it.
        (
            "raise ValueError('too early')",
            "the script failed before its first step with ValueError: too early (early.py:1)",
        ),
        # Of an installed package, the line that called it.
        (
            "\nimport yaml\nyaml.safe_load('{')",
            "the script failed before its first step with ParserError: while parsing a flow node (early.py:3)",
        ),
        # A library ends the process, such as Open MPI where it cannot start: Python knows nothing of it. The same is said
        # of the ending "before" below.
        pytest.param(
            "import torch, ctypes\nctypes.CDLL(None).exit(14)",
            "the command ended with exit code 14 before its first step, without an error of Python",
            marks=pytest.mark.slow,
        ),
        (
            "import sys\nprint('here')\nsys.exit('nothing to\\nlearn from')",
            "the script failed before its first step with SystemExit: learn from (early.py:3)",
        ),
        # Of an error that another process had, its own last line.
        (
            "raise RuntimeError('In a worker:\\nTraceback (most recent call last):\\n  File\\nKeyError: 7')",
            "the script failed before its first step with KeyError: 7 (early.py:1)",
        ),
    ],
)
def test_a_program_that_ends_before_its_first_step_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "early.py").write_text(f"{text}\n")
    done = start("python early.py", "window=5", tmp_path)
    assert done.returncode == 2 and f"mine train: {said}" in done.stderr


# By the way in which a script ends: what is said, and words of the line that is named.
ENDINGS = {
    "before": ("ended with exit code 3 before its first step ({}), without an error of Python; it printed last: cannot begin", "os._exit"),
    "backward": ("the script failed in step 3 with ArithmeticError: no gradient ({})", "raise ArithmeticError"),
    "called": ("the script failed in step 3 with RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x5 and 4x4) ({})", "(2, 5)"),
    "library": ("ended with exit code 14 in step 3, without an error of Python; it printed last: no runtime for processes", ""),
    "message": ("the script failed in step 3 with SystemExit: out of patience ({})", "sys.exit("),
    "abort": ("was ended by SIGABRT in step 3 ({}), without an error of Python; it printed last: the third step", "os.abort"),
    "crash": ("was ended by SIGSEGV in step 3 ({}), without an error of Python; it printed last: the third step", "string_at"),
    "killed": ("was ended by SIGKILL in step 3, without an error of Python; it printed last: the third step; by a user", ""),
}  # fmt: skip


@pytest.mark.parametrize("way", slow.first(ENDINGS))
def test_where_and_with_what_a_script_ended(tmp_path: Path, way: str) -> None:
    said, words = ENDINGS[way]
    done = start(f"python {SCRIPTS / 'endings.py'} {way}", "window=5", tmp_path)
    assert done.returncode == 2 and said.format(place_of(words)) in str(failures.find_cause(done.stdout + done.stderr))


def test_where_a_script_was_that_is_stopped(tmp_path: Path) -> None:
    """All its processes get the signal at the same time, and its job adds why."""
    words = [sys.executable, "-m", "profzoo.run", "mine", "train", f"command=python {SCRIPTS / 'endings.py'} hangs"]
    given = os.environ | {"PYTHONPATH": str(PROJECT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout and any("the third step" in line for line in process.stdout)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGTERM)
        printed = process.stdout.read()
    late = "time took longer than 2 s and was ended"
    place = place_of("time.sleep")
    assert failures.find_cause(f"{printed}profzoo: {late}\n") == f"{late}; the script was stopped in step 3 ({place})"
    assert failures.find_cause(f"profzoo: {late}\n{printed}") == f"{late}; the script was stopped in step 3 ({place})"


def place_of(words: str) -> str:
    lines = (SCRIPTS / "endings.py").read_text().splitlines()
    return f"{SCRIPTS / 'endings.py'}:{next(number for number, line in enumerate(lines, 1) if words in line)}"


def test_descriptors_of_the_job_reach_the_script(tmp_path: Path) -> None:
    """Locks on GPUs are held as long as the last process has their descriptor, and shifts are given by one."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    (tmp_path / "told.py").write_text(f"import os\nos.write({write}, b'here')\n")
    with pytest.raises(CollectError):
        launcher.run_script(cell_of(f"{sys.executable} {tmp_path / 'told.py'}", ""), Namespace(at_least_s=0.0))
    os.close(write)
    assert os.read(read, 10) == b"here"
    os.close(read)


def test_first_steps_of_scripts_are_compared(found: Mapping[str, Any]) -> None:
    """Without double precision: the same loop is the same, and nine tenths of its losses are something else."""
    first = found["finished"]["first_steps"]
    assert len(first["losses"]) >= 6 and len(set(first["losses"])) == len(first["losses"])
    assert len(first["gradient_norms"]) == 2 and first["used_parameters"] == found["finished"]["parameters"]
    less = {**found["dataloader"]["first_steps"]}
    less["losses"] = [0.9 * loss for loss in less["losses"]]
    others = (found["dataloader"], found["accumulation"], {**found["dataloader"], "first_steps": less})
    mine, same, larger, wrong = (
        numeric_checks.read_side(facts, {}, [facts])  # type: ignore[typeddict-item]
        for facts in (found["finished"], *others)
    )
    assert numerics.compare_numbers(mine, same).result == numerics.SAME
    assert numerics.compare_numbers(mine, larger).why == "batches of 8 and 24 samples hold other data"
    assert numerics.compare_numbers(mine, wrong).result == numerics.DIFFERENT
    # A scaler's gradients are noted without its scale.
    norms = [found[name]["first_steps"]["gradient_norms"] for name in ("scaler", "finished")]
    assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-5)


def test_modules_that_are_called_again_on_the_same_inputs_are_noted(found: Mapping[str, Any]) -> None:
    (one,) = found["repeated"]["repeated_calls"]
    assert (one["type"], one["calls"]) == ("Sequential", 2)
    lines = (SCRIPTS / "repeated.py").read_text().splitlines()
    calling = [str(number) for number, text in enumerate(lines, 1) if "encoder(batch)" in text]
    assert [place.partition("repeated.py:")[2] for place in one["places"]] == calling
    # Nothing is observed of compiled steps, which would be compiled again.
    assert "repeated_calls" not in found["compiled"]
    assert all(found[name]["repeated_calls"] == [] for name in ("loop", "accumulation", "two optimizers", "generation"))
