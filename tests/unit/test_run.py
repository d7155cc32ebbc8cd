"""models.run: exit codes, files it leaves, both phases, reproducibility, its command line."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from models import lstm
from profzoo import run
from profzoo.cell import registry
from profzoo.errors import ConfigError
from tests import slow, zoo

TINY = {name: [f"{key}={value}" for key, value in shape.items()] for name, shape in zoo.TINY.items()}
# Of these a test of all models runs each time: a convolution, a recurrence, an attention.
FEW = ("bert", "lstm", "mobilenetv2")
ONE = ["window=1", "warmup=0", "device=cpu"]
# The coarsest maps of yolov8 learn large boxes alone.
LARGE = {"yolov8": ["size=512", "boxes=8"]}


def facts_of(folder: Path, *words: str) -> dict:
    path = folder / "facts.json"
    assert run.main([*words, "--facts", str(path)]) == 0
    return json.loads(path.read_text())


def ran(folder: Path, *words: str) -> None:
    facts = facts_of(folder, *words, *ONE, "--steps", str(folder / "steps.csv"))
    assert (facts["loss"] is None) == ("inference" in words)
    assert facts["steps"] == 1 and facts["items"] == facts["batch"] and facts["device_type"] == "cpu"
    assert pd.read_csv(folder / "steps.csv")["wall_ns"].tolist() == [facts["window_wall_ns"]]


@pytest.mark.parametrize("name", slow.only(sorted(registry.shipped_models()), *FEW))
def test_every_model_infers(tmp_path: Path, name: str) -> None:
    ran(tmp_path, name, "inference", *TINY[name])


@pytest.mark.parametrize("name", slow.only(sorted(registry.shipped_models()), *FEW))
def test_every_model_trains_and_a_step_reaches_every_weight(tmp_path: Path, name: str) -> None:
    network = zoo.network(zoo.cell(name))
    assert all(module.training for module in network.modules())
    before, weights = network.state_dict(), tmp_path / "w.pt"
    ran(tmp_path, name, "train", *TINY[name], *LARGE.get(name, ()), "--save", str(weights))
    after = torch.load(weights)
    assert all(value.isfinite().all() for value in after.values())
    learnt = [key for key, value in network.named_parameters() if value.requires_grad]
    assert not [key for key in learnt if torch.equal(after[key], before[key])]
    running = [key for key in after if key.endswith("running_mean")]
    assert not [key for key in running if torch.equal(after[key], before[key])]


def test_a_process_records_the_settings_that_it_resolved(tmp_path: Path) -> None:
    words = ["lstm", "train", *TINY["lstm"], *ONE, "precision=bf16", "optimizer=fused"]
    facts = facts_of(tmp_path, *words)
    assert facts["ran_with"] == run.resolve_words(*words[:2], "time", words[2:])
    assert (facts["ran_with"]["precision"], facts["ran_with"]["optimizer"]) == ("bf16", "fused")


def test_the_same_seed_trains_to_the_same_loss(tmp_path: Path) -> None:
    words = ["lstm", "train", *TINY["lstm"], "window=3", "warmup=0", "device=cpu", "threads=1"]
    said = [facts_of(tmp_path, *words, f"seed={seed}") for seed in (1, 1, 2)]
    losses = [facts["loss"] for facts in said]
    assert losses[0] == losses[1] != losses[2] and said[0]["threads"] == 1


def test_weights_go_from_training_to_inference(tmp_path: Path) -> None:
    weights = str(tmp_path / "w.pt")
    assert run.main(["lstm", "train", *TINY["lstm"], *ONE, "--save", weights]) == 0
    assert run.main(["lstm", "inference", *TINY["lstm"], *ONE, "--load", weights, "--save", f"{weights}2"]) == 0
    before, after = torch.load(weights), torch.load(f"{weights}2")
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)


def test_inference_without_trained_weights_starts_with_those_of_the_seed(tmp_path: Path) -> None:
    words, weights = ["lstm", "inference", *TINY["lstm"], *ONE], str(tmp_path / "w.pt")
    one, same, other = (facts_of(tmp_path, *words, f"seed={seed}", "--save", weights) for seed in (1, 1, 2))
    assert one["outputs"] == same["outputs"] != other["outputs"] and one["weights_from"] == "initial"
    loaded = facts_of(tmp_path, *words, "seed=1", "--load", weights)
    assert loaded["weights_from"] == f"{tmp_path.name}/w.pt" and loaded["outputs"] != one["outputs"]


@pytest.mark.parametrize("stacks", slow.first([True, False]))
def test_trace_and_table(tmp_path: Path, stacks: bool) -> None:
    trace, table = tmp_path / "t.json.gz", tmp_path / "o.csv"
    words = [*TINY["lstm"], "warmup=1", "window=2", "device=cpu", "profiler.warmup=1", f"profiler.stacks={stacks}"]
    facts = facts_of(tmp_path, "lstm", "train", *words, "--trace", str(trace), "--operators", str(table))
    assert facts["steps"] == 2
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    steps = [event for event in events if event["name"] == "profzoo:step" and event.get("cat") == "user_annotation"]
    assert len(steps) == 2
    operators = pd.read_csv(table, keep_default_na=False).set_index("name")
    assert operators.loc["profzoo:optimizer", "count"] == 2
    assert operators["stack"].any() == stacks


def test_a_baseline_before_the_profiler(tmp_path: Path) -> None:
    steps, trace, table = (tmp_path / name for name in ("s.csv", "t.json.gz", "o.csv"))
    words = ["lstm", "train", *TINY["lstm"], "warmup=1", "window=2", "device=cpu", "profiler.warmup=1", "threads=1"]
    files = ["--trace", str(trace), "--operators", str(table)]
    facts = facts_of(tmp_path, *words, "profiler.baseline=4", *files, "--steps", str(steps))
    timed = facts["baseline"]
    assert (facts["steps"], timed["steps"], len(pd.read_csv(steps))) == (2, 4, 4)
    assert timed["items"] == 4 * facts["batch"] and timed["loss"] != facts["loss"]
    assert timed["step_ns"] > 0 and 0 < timed["peak_rss_bytes"] <= facts["peak_rss_bytes"]
    assert timed["window_began_ns"] + timed["window_wall_ns"] <= facts["window_began_ns"]
    # The trace has the steps of the profiler alone.
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert sum(event["name"] == "profzoo:step" and event.get("cat") == "user_annotation" for event in events) == 2
    for lacking in (["profiler.baseline=4"], ["--steps", str(steps)]):
        assert run.main([*words, *lacking, *files]) == 2


OWN = {
    "nan": ("\ndef loss(o, t):\n    return o.sum() * float('nan')\n", "train", 3, "mine train: the loss is nan at step 0"),
    "infinite": ("\ndef loss(o, t):\n    return o.sum() / 0\n", "train", 3, "inf at step 0"),
    "nan_output": (
        "\ndef build(s):\n    m = SentimentLSTM(s.features, s.hidden, 1, 2, False, False)\n"
        "    nn.init.constant_(m.head.bias, float('nan'))\n    return m\n",
        "inference", 3, "the output of the last step holds NaN or infinity",
    ),
    "raising": ("\ndef loss(o, t):\n    raise ValueError('odd\\nmore')\n", "train", 1, "failed with ValueError: odd"),
    "silent": ("\ndef loss(o, t):\n    raise ValueError\n", "train", 1, "failed with ValueError: no message"),
    "full": ("\ndef loss(o, t):\n    raise torch.cuda.OutOfMemoryError('7 GiB')\n", "train", 1,
             "ran out of memory at batch 4: set a smaller batch, or batch: auto to find one. 7 GiB"),
    "outside": ("\ndef loss(o, t):\n    raise RuntimeError('CUDA error: an illegal memory access was encountered\\nmore')\n",
                "train", 1, "memory access was encountered; a kernel reads or writes outside its tensors: run the log's command "
                "under `compute-sanitizer`, which names it"),
    "index": ("\ndef loss(o, t):\n    raise RuntimeError('CUDA error: device-side assert triggered')\n", "train", 1,
              "assert triggered; most often an index out of range"),
    "mixed": ("\n\ndef loss(o, t):\n    made = torch.zeros(8, len(o[0]), dtype=torch.float64)\n"
              "    return made.index_add_(0, torch.zeros(len(o), dtype=torch.long), o).sum()\n", "train", 1,
              f"/own_mixed.py:{len(Path(lstm.__file__).read_text().splitlines()) + 5})"),
    "broken": ("\nimport does_not_exist\n", "train", 1, "failed with ModuleNotFoundError: No module named 'does_not_exist'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_failures_of_an_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, kind: str
) -> None:
    body, phase, code, words = OWN[kind]
    (tmp_path / f"own_{kind}.py").write_text(Path(lstm.__file__).read_text() + body)
    monkeypatch.syspath_prepend(str(tmp_path))
    facts = tmp_path / "facts.json"
    arguments = ["mine", phase, f"module=own_{kind}", *TINY["lstm"], *ONE, "--facts", str(facts)]
    assert run.main(arguments) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("profzoo: ")]
    assert len(lines) == 1 and words in lines[0] and not facts.exists()


def test_a_model_may_change_its_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the command names by relative paths are where the command was given."""
    (tmp_path / "elsewhere").mkdir()
    own = f"\nimport os\nMADE = build\n\ndef build(s):\n    os.chdir({str(tmp_path / 'elsewhere')!r})\n    return MADE(s)\n"
    (tmp_path / "own_moving.py").write_text(Path(lstm.__file__).read_text() + own)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ["mine", "train", "module=own_moving", *TINY["lstm"], *ONE, "--facts", "facts.json", "--steps", "steps.csv"]
    assert run.main([*words, "--save", "weights.pt", "--memory", "memory.csv"]) == 0
    assert all((tmp_path / name).is_file() for name in ("facts.json", "steps.csv", "weights.pt", "memory.csv"))
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lstm", "trian"], "unknown phase 'trian': did you mean 'train'?"),
        (["lstm", "train", "batch"], "'batch' is not a setting: give key=value"),
        (["lstm", "train", "batch=0"], "batch = 0 is too small"),
        (["lstm", "train", "hiden=3"], "did you mean 'hidden'?"),
        (
            ["lstm", "train", "profiler.wait=-1", "--trace", "t.gz", "--operators", "o"],
            "profiler.wait = -1 is too small",
        ),
        (["lstm", "train", *ONE, "--load", "no_such.pt"], "no_such.pt"),
        (["lstm", "train", *ONE, "--trace", "t.json.gz"], "--operators"),
    ],
)
def test_input_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.main(arguments) == 2
    printed = capsys.readouterr().err
    assert words in printed and printed.startswith("profzoo: ") and printed.count("\n") == 1


def test_a_size_may_be_what_the_model_itself_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a job spell every setting out, those that are the model's own too."""
    given = Path(lstm.__file__).read_text()
    (tmp_path / "own_zero.py").write_text(given.replace("SHAPE = {", "SHAPE = {'extra': 0, 'shift': -2, ", 1))
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["module=own_zero", "extra=0", "shift=-2"]
    shape, plain = (run.resolve_words("mine", "train", "time", given)["shape"] for given in (words, words[:1]))
    assert shape | {"extra": 0, "shift": -2} == plain
    with pytest.raises(ConfigError, match="extra = -1 is too small: at least 0"):
        run.resolve_words("mine", "train", "time", ["module=own_zero", "extra=-1"])
