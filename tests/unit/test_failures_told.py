"""collect/failures and collect/logs: what a run says last of jobs that failed, and of logs of any size and content."""

import asyncio
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo.collect import failure_causes, failure_summary, logs, output_refusals
from profzoo.collect.failure_summary import Failure
from profzoo.run import _summarise


def failure(log: Path, **more: object) -> Failure:
    given = {"rule": "time_training", "wildcards": {"model": "unet"}, "outputs": ["results/unet/train.time.csv"]}
    job = '{"tool": "time", "cell": {"phase": "train"}}'
    return Failure(**{**given, "job": job, "logs": [str(log)], **more})


def test_a_block_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"$ python -m models.run\nTraceback\nprofzoo: the cat is on the keyboard (log: {log})\n")
    words = ["/usr/bin/snakemake", "-j4", "all", "--config", "tool=nsys torch"]
    said = failure_summary.format_failures([failure(log)], 3, words, {"all"}).splitlines()
    assert said == [
        "1 job failed, and 3 jobs did not run because of it:",
        "  unet train: time",
        "    why      the cat is on the keyboard",
        f"    log      {log}",
        "    repeat   snakemake results/unet/train.time.csv -j4 --config 'tool=nsys torch'",
    ]
    assert failure_summary.format_failures([], 0, words, {"all"}) == ""


def test_blocks_are_in_order_whatever_that_of_the_failures(tmp_path: Path) -> None:
    several = [failure(tmp_path / "no", wildcards={"model": name}) for name in ("vgg16", "lstm", "unet")]
    said = failure_summary.format_failures(several, 0, [], ())
    assert said.startswith("3 jobs failed:\n")
    assert [line.strip() for line in said.splitlines() if line.endswith(": time")] == [
        "lstm train: time", "unet train: time", "vgg16 train: time"
    ]  # fmt: skip


def test_a_block_a_cause(tmp_path: Path) -> None:
    """Three models: one fails wherever it is looked at, two for the same thing that is not theirs."""
    cat = "gpt train failed with RuntimeError: the cat is on the keyboard"
    lines = {
        ("gpt", "torch"): cat,
        ("gpt", "time"): f"not run under time, because it failed under torch: {cat}",
        ("gpt", "nsys"): f"not run under nsys, because it failed under torch: {cat}",
        ("lstm", "ncu"): "lstm train: no permission to read counters",
        ("unet", "ncu"): "unet train: no permission to read counters",
        ("vgg16", "torch"): "vgg16 train failed with RuntimeError: the dog is under the desk",
    }
    several = []
    for (model, tool), line in lines.items():
        (log := tmp_path / f"{model}.{tool}.log").write_text(f"profzoo: {line}\n")
        job = f'{{"tool": "{tool}", "cell": {{"phase": "train"}}}}'
        unrun = ["gpt inference: time", "gpt train: time"] if (model, tool) == ("gpt", "torch") else []
        outputs = [f"results/{model}/train.{tool}.csv"]
        several.append(failure(log, wildcards={"model": model}, job=job, outputs=outputs, unrun=unrun))
    said = failure_summary.format_failures(several, 5, ["snakemake"], ()).splitlines()
    assert said == [
        # Five that wait, and two that were spared.
        "4 jobs failed of 3 causes, and 7 jobs did not run because of them:",
        "  gpt train: torch",
        f"    why      {cat}",
        f"    log      {tmp_path}/gpt.torch.log",
        "    repeat   snakemake results/gpt/train.torch.csv",
        "    not run  gpt train: nsys; gpt train: time; gpt inference: time",
        "  lstm train: ncu",
        "    why      lstm train: no permission to read counters",
        f"    log      {tmp_path}/lstm.ncu.log",
        "    repeat   snakemake results/lstm/train.ncu.csv",
        "    also     unet train: ncu",
        "  vgg16 train: torch",
        "    why      vgg16 train failed with RuntimeError: the dog is under the desk",
        f"    log      {tmp_path}/vgg16.torch.log",
        "    repeat   snakemake results/vgg16/train.torch.csv",
    ]


# As a model's program ends that ran to its end.
SUCCESS = "lstm train on CPU: 2 steps of batch 10, 1.03 ms per step, 9701.3 samples/s, loss 0.6931, 93,570 parameters"


def test_a_programs_success_is_known_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {
        "steps": 2, "step_ns": 1.03e6, "items": 20, "loss": 0.6931, "device": "CPU", "device_why": "", "batch": 10,
        "parameters": 93570,
    }  # fmt: skip
    for changes in ({}, {"loss": None}, {"steps": 0}, {"device_why": "no GPU: here"}):
        _summarise({"model": "lstm@two", "phase": "train", "gpus": 2, "nodes": 1}, facts | changes)
        assert failure_summary.ENDED_WELL.match(capsys.readouterr().out.strip())


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            "Job 7 completed successfully, but some output files are missing. Missing files after 5 seconds. This "
            "might be due to filesystem latency. If that is the case, consider to increase the wait time with "
            "--latency-wait:\nresults/a.csv (missing locally, parent dir contents: b)\nresults/c d.csv",
            "its program succeeded but left no results/a.csv, results/c d.csv",
        ),
        ("Output files\n  are odd\n", "Output files; are odd"),
    ],
)
def test_what_snakemake_refuses_is_one_line(message: str, why: str) -> None:
    assert output_refusals.explain_refusal(message) == why


def test_what_snakemake_refuses_is_in_the_jobs_log(tmp_path: Path) -> None:
    """As a line that a log ends with whose job failed, whatever the program said; once, however often it is heeded."""

    class Dag:
        async def check_and_touch_output(self, job: object, wait: int = 3) -> None:
            if wait != 3:
                raise OSError(f"refused {wait}")

    for _ in range(2):
        output_refusals.note_refusals(Dag)
    log, good = tmp_path / "log", tmp_path / "good"
    for path in (log, good):
        path.write_text(f"{SUCCESS}\n")
    asyncio.run(Dag().check_and_touch_output(SimpleNamespace(log=[good])))
    with pytest.raises(OSError, match="refused 5"):
        asyncio.run(Dag().check_and_touch_output(SimpleNamespace(log=[log, tmp_path / "none/log"]), wait=5))
    assert log.read_text() == f"{SUCCESS}\nprofzoo: refused 5\n" and good.read_text() == f"{SUCCESS}\n"
    assert failure_summary.read_cause([str(log)]) == "refused 5"


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("profzoo: first\nprofzoo: last\n", "last"),
        ("OSError: [Errno 28] No space left on device\n", failure_causes.FULL),
        ("Traceback\n  File\nKeyError: 'kernel'\n\n", "KeyError: 'kernel'"),
        ("$ python -m models.run\n", failure_summary.UNSAID),
        ("", failure_summary.UNSAID),
        (f"$ python\n{SUCCESS}\n", failure_summary.AFTER),
        (f"$ python\n{SUCCESS}\nprofzoo: out is older\n", "out is older"),
        ("profzoo: a \x1b[2Jcleared\x07 screen \x1b]0;title\x07\n", "a cleared screen "),
    ],
)
def test_why(tmp_path: Path, log: str, why: str) -> None:
    (tmp_path / "log").write_text(log)
    assert failure_summary.read_cause([str(tmp_path / "log")]) == why


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert failure_summary.read_cause([str(tmp_path / "none")]) == failure_summary.UNSAID


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * 10_000_000)
    assert len(failure_summary.read_cause([str(tmp_path / "log")])) <= failure_summary.WHY_CHARACTERS + 2


def test_a_log_of_any_size_takes_no_more_memory(tmp_path: Path) -> None:
    """A sparse file of 3 GB, as a model leaves that prints all it does, with what matters at both ends."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(b"begins\n")
        file.seek(3 << 30)
        file.write(b"\nprofzoo: it ended\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = logs.read_excerpt(log)
    assert text.startswith("begins\n") and text.endswith("profzoo: it ended\n")
    assert len(text) <= logs.READ_BYTES + 1
    # In KB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("size", [0, 1, logs.READ_BYTES // 2, logs.READ_BYTES - 1, logs.READ_BYTES])
def test_a_log_within_bounds_is_read_whole(tmp_path: Path, size: int) -> None:
    text = ("0123456789" * (size // 10 + 1))[:size]
    (tmp_path / "log").write_text(text)
    assert logs.read_excerpt(tmp_path / "log").replace("\n", "") == text
