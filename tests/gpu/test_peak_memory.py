"""Memory of a step on a real GPU: the table's peaks are those of the allocator, whatever the cell."""

import json
from pathlib import Path

import pytest
import torch

from profzoo import run
from profzoo.cell import settings
from profzoo.io import csv_tables as reading
from profzoo.plans import plan
from profzoo.tools.time import tables


@pytest.mark.parametrize("name", ["mobilenetv2", "bert", "lstm", "srgan", "mobilenetv2@bf16", "mobilenetv2@graph"])
@pytest.mark.parametrize("phase", settings.PHASES)
def test_peaks_are_the_allocators(tmp_path: Path, name: str, phase: str) -> None:
    torch.cuda.empty_cache()
    model, _, variant = name.partition("@")
    words = {"bf16": ["precision=bf16"], "graph": ["graph=true"]}.get(variant, [])
    files = [
        "--steps",
        str(tmp_path / "s.csv"),
        "--memory",
        str(tmp_path / "m.csv"),
        "--facts",
        str(tmp_path / "f.json"),
    ]
    assert run.main([model, phase, "window=2", *words, *files]) == 0
    rows, facts = reading.read(tmp_path / "m.csv", tables.MEMORY), json.loads((tmp_path / "f.json").read_text())
    print(name, phase, facts["memory"], rows.to_csv(index=False), sep="\n")
    modules, rows = rows[rows["module"] != ""], rows[rows["module"] == ""]
    assert rows["peak_bytes"][0] == facts["memory"]["allocator_peak_bytes"] == rows["peak_bytes"].max()
    assert modules["peak_bytes"].sum() == rows["peak_bytes"][0] and rows["unused_bytes"][0] > 0
    assert (rows["weights_bytes"] >= 4 * facts["parameters"]).all() and (rows["other_bytes"] >= 0).all()
    if phase == "train":
        # Of a large block the allocator leaves as much as 1 MiB unused rather than split it.
        assert 0 < rows["gradients_bytes"].max() <= 1.05 * rows["weights_bytes"][0] + 512 * 2000
        assert rows.loc[rows["range"] == "backward", "activations_bytes"].max() > 0


def test_predicted_peaks_are_those_of_the_allocator(tmp_path: Path) -> None:
    """Of a network of matrix products, for which libraries need no memory of their own in the step."""
    files = ["--memory", str(tmp_path / "m.csv"), "--facts", str(tmp_path / "f.json")]
    words = {
        "checkpoint": "checkpoint=true",
        "bf16": "precision=bf16",
        "fused": "optimizer=fused",
        "batch16": "batch=16",
    }
    remedies = {name: plan.parse_typed(word) for name, word in words.items()}
    assert run.main(["bert", "train", "window=2", "batch=32", *files, "--remedies", json.dumps(remedies)]) == 0
    rows = reading.read(tmp_path / "m.csv", tables.MEMORY)
    found = rows[rows["remedy"] != ""].set_index("remedy")
    found = found["peak_bytes"] - found["other_bytes"]
    for remedy, word in words.items():
        assert run.main(["bert", "train", "window=2", "batch=32", word, *files]) == 0
        peak = json.loads((tmp_path / "f.json").read_text())["memory"]["allocator_peak_bytes"]
        # What earlier runs in this process have left is no part of the cell's memory.
        tried = peak - reading.read(tmp_path / "m.csv", tables.MEMORY)["other_bytes"][0]
        print(remedy, found[remedy], tried)
        assert found[remedy] == pytest.approx(tried, rel=0.02)
