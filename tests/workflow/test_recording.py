"""A loop that recorded itself: its tables, what they advise, and the page, by the ordinary rules of the workflow."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

import profzoo
from profzoo.cli import recorded_advice
from profzoo.records.import_graph import PROJECT
from profzoo.script_harness import recorded_files
from profzoo.script_harness.recording import Recording

STEPS = 6


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take far longer to load than a step does, on a busy machine too."""

    def __len__(self) -> int:
        return 8 * 40

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.full((16,), float(number))


def record_loop() -> Recording:
    """A loop that waits for its batches of 8."""
    network = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    optimizer = torch.optim.Adam(network.parameters())
    with profzoo.record("mine", steps=STEPS) as record:
        for inputs in torch.utils.data.DataLoader(Slow(), batch_size=8):
            if record.done:
                break
            optimizer.zero_grad()
            network(inputs).pow(2).mean().backward()
            optimizer.step()
    return record


class Words(HTMLParser):
    """The text of a document, and the elements that are open at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.open = "", list[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_recording_has_the_tables_of_a_script_and_advice_in_pytorchs_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = record_loop()
    advice = record.advice()
    results = profzoo.load("profzoo-results/results")
    cell = results.tables["cells"].iloc[0]
    assert (cell["model"], cell["phase"], cell["batch"], cell["steps"]) == ("mine", "train", 8, STEPS)
    timed = json.loads(Path("profzoo-results/results/mine/train.time.csv.json").read_text())
    assert timed["script"]["step"] == "a step of Adam" and timed["first_steps"]["losses"]
    assert len(results.cell("mine").steps) == STEPS
    layers = pd.read_csv("profzoo-results/results/mine/train.operators.csv")
    assert {"forward", "backward", "optimizer"} <= set(layers["direction"])
    first, *lines = str(advice).splitlines()
    assert first.startswith("mine: ") and " samples/s, on CPU" in first
    told = "\n".join(lines)
    assert "where the DataLoader is made:" in told and ", num_workers=" in told and "because: input-bound: " in told
    assert lines[-1] == (
        "page with tables and figures: cd profzoo-results && snakemake report --configfile recorded/mine/config.yaml"
    )
    shown = Words()
    shown.feed(advice._repr_html_())
    assert not shown.open and ", num_workers=" in shown.text and repr(advice) == str(advice)


def snakemake(folder: Path, *words: str) -> str:
    variables = recorded_advice.workflow_variables(os.environ)
    command = [sys.executable, "-m", "snakemake", *words, "--configfile", "recorded/mine/config.yaml"]
    run = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@pytest.mark.slow
def test_the_page_is_made_and_a_new_recording_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "profzoo-results"
    record_loop().advice()
    assert "report  results/report.html" in snakemake(folder, "report") and (folder / "results/report.html").exists()
    assert "Nothing to be done" in snakemake(folder, "report", "-n")
    again = record_loop()
    again.advice()
    assert (folder / "results/mine/train.time.csv").read_text() == (again.place / "steps.csv").read_text()


@pytest.mark.slow
def test_a_recording_on_a_gpu_has_advice_without_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launches of a real trace on a GPU, beside the facts of a loop on this CPU."""
    monkeypatch.chdir(tmp_path)
    record = record_loop()
    traced = PROJECT / "tests" / "data" / "torch"
    shutil.copy(traced / "train.trace.json.gz", record.place / "trace.json.gz")
    operators = gzip.decompress((traced / "train.torch-operators.csv.gz").read_bytes())
    (record.place / "operators.csv").write_bytes(operators)
    facts = json.loads((record.place / "facts.json").read_text())
    facts |= {"device_type": "cuda", "device": "NVIDIA H200", "steps": 2}
    (record.place / "facts.json").write_text(json.dumps({key: one for key, one in facts.items() if key != "roof"}))
    lines = recorded_files.configuration_lines("mine", facts)
    (record.place / "config.yaml").write_text("\n".join(lines))
    told = str(record.advice())
    assert "optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)" in told
    assert told.splitlines()[-1].startswith("what threads wait for takes nsys, and counters of kernels take ncu")
