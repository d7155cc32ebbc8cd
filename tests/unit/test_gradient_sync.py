"""How gradients are sent is told of real processes (gloo): in buckets beside the backward pass, and in one after it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from profzoo.harness.gradient_sync import describe_gradient_sync
from profzoo.verdicts import cell_facts, sync_places
from tests.known_rules import a_verdict

PROJECT = Path(__file__).parents[2]
LAYERS, WIDTH = 12, 512
# A network with one planted fault at a time, and without one.
PROGRAM = f"""
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from profzoo.harness.gradient_sync import describe_gradient_sync

dist.init_process_group("gloo")
found = {{}}
for name, options in {{
    "mended": {{"bucket_cap_mb": 2}}, "one bucket": {{"bucket_cap_mb": 1000}},
    "unused": {{"bucket_cap_mb": 2, "find_unused_parameters": True}},
}}.items():
    network = DistributedDataParallel(nn.Sequential(*(nn.Linear({WIDTH}, {WIDTH}) for _ in range({LAYERS}))), **options)
    for _ in range(8):
        network(torch.randn(256, {WIDTH})).sum().backward()
    # The same network twice is one.
    found[name] = describe_gradient_sync([nn.Sequential(network), network])["gradient_sync"]
    if name == "mended":
        first = network
found["mended"]["of two"] = describe_gradient_sync([first, network])["gradient_sync"]["networks"]
if not dist.get_rank():
    print("FOUND" + json.dumps(found))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    program = tmp_path_factory.mktemp("sync") / "program.py"
    program.write_text(PROGRAM)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    done = subprocess.run(
        launcher, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300, env=_environment()
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("FOUND")[2])


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}


def beside(sync: Any) -> float:
    return sync["overlap_ns"] / sync["communication_ns"]


def test_buckets_hold_all_gradients(found: dict[str, Any]) -> None:
    size = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    assert all(sum(one["bucket_bytes"]) == size for one in found.values())
    assert len(found["mended"]["bucket_bytes"]) > 4 and len(found["one bucket"]["bucket_bytes"]) == 1
    assert [one["find_unused_parameters"] for one in found.values()] == [False, False, True]


def test_networks_that_send_are_counted(found: dict[str, Any]) -> None:
    assert [one["networks"] for one in found.values()] == [1, 1, 1] and found["mended"]["of two"] == 2


def test_one_bucket_is_sent_after_the_backward_pass(found: dict[str, Any]) -> None:
    assert beside(found["one bucket"]) < 0.6 * beside(found["mended"])


def test_the_verdict_on_communication_says_how_gradients_are_sent(found: dict[str, Any]) -> None:
    row = a_verdict("communication-bound", about="communication", next_step="overlap it")
    told = {name: sync_places.name_sync(row, sync).next_step for name, sync in found.items()}
    assert told["one bucket"].startswith("gradients are sent in 1 bucket of 12 MB, ")
    assert "set bucket_cap_mb=3" in told["one bucket"] and told["one bucket"].endswith(": overlap it")
    assert "bucket_cap_mb" not in told["mended"] and "find_unused" not in told["mended"]
    assert "find_unused_parameters=True looks through the graph in each step" in told["unused"]
    other = a_verdict("launch-bound", about="idle_launching")
    assert sync_places.name_sync(other, found["mended"]) == other and sync_places.name_sync(row, None) == row


def test_networks_of_one_process_send_nothing() -> None:
    assert describe_gradient_sync([nn.Linear(2, 2)]) == {} == describe_gradient_sync([])


def test_facts_are_read_of_the_process_that_a_cell_names_first(tmp_path: Path) -> None:
    sync = {"bucket_bytes": [8], "find_unused_parameters": False, "communication_ns": 1, "overlap_ns": 0}
    file = tmp_path / "m" / "train.time.csv.json"
    file.parent.mkdir()
    for facts, known in (
        ({"cell": {}}, {}),
        ({"cell": {}, "gradient_sync": sync}, {("m", "train"): sync}),
        ({"cell": {}, "ranks": [{"gradient_sync": sync}, {}]}, {("m", "train"): sync}),
        ({"cell": {}, "ranks": [{"rank": 0}, {"rank": 1}]}, {}),
    ):
        file.write_text(json.dumps(facts))
        assert cell_facts.read_cell_facts([str(file)]).syncs == known
