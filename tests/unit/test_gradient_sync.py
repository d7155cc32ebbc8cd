"""How gradients are sent is told of a process (gloo): in which buckets, and how much beside the backward pass."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from profzoo.harness import distributed
from profzoo.harness.distributed import describe_gradient_sync
from profzoo.verdicts.causes import verdicts
from profzoo.verdicts.rules import cell_facts
from tests.known_rules import a_verdict

# Networks with one planted fault at a time, and without one.
OPTIONS: dict[str, dict[str, Any]] = {
    "mended": {"bucket_cap_mb": 1},
    "one bucket": {"bucket_cap_mb": 1000},
    "unused": {"bucket_cap_mb": 1, "find_unused_parameters": True},
}
LAYERS, WIDTH = 8, 384


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DistributedDataParallel]]:
    """Networks of this process, which is alone, after steps enough for buckets to be made again."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("sync") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = {}
    for name, options in OPTIONS.items():
        layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        made[name] = DistributedDataParallel(layers, **options)
        for _ in range(4):
            made[name](torch.randn(4, WIDTH)).sum().backward()
    yield made
    dist.destroy_process_group()


def test_buckets_hold_all_gradients(sending: dict[str, DistributedDataParallel]) -> None:
    found: dict[str, Any] = {name: describe_gradient_sync([one])["gradient_sync"] for name, one in sending.items()}
    size = 4 * LAYERS * (WIDTH * WIDTH + WIDTH)
    assert all(sum(one["bucket_bytes"]) == size for one in found.values())
    assert len(found["mended"]["bucket_bytes"]) >= 4 and len(found["one bucket"]["bucket_bytes"]) == 1
    assert [one["find_unused_parameters"] for one in found.values()] == [False, False, True]
    assert [one["networks"] for one in found.values()] == [1, 1, 1]


def test_networks_that_send_are_counted_once(sending: dict[str, DistributedDataParallel]) -> None:
    one, other, _ = sending.values()
    assert describe_gradient_sync([nn.Sequential(one), one])["gradient_sync"]["networks"] == 1
    assert describe_gradient_sync([one, other])["gradient_sync"]["networks"] == 2
    assert describe_gradient_sync([nn.Linear(2, 2)]) == {} == describe_gradient_sync([])


def test_buckets_are_those_of_after_the_first_backward_pass() -> None:
    logged = {"rebuilt_bucket_sizes": "8, 4", "bucket_sizes": "12", "find_unused_parameters": 1,
              "avg_backward_comm_time": 7, "avg_backward_compute_comm_overlap_time": 3}  # fmt: skip
    networks: Any = [SimpleNamespace(_get_ddp_logging_data=lambda: logged), None]
    assert distributed._read(networks) == {
        "networks": 2, "bucket_bytes": [8, 4], "find_unused_parameters": True, "communication_ns": 7, "overlap_ns": 3
    }  # fmt: skip
    logged = {"rebuilt_bucket_sizes": "", "bucket_sizes": "12"}
    assert distributed._read(networks[:1])["bucket_bytes"] == [12]


def test_the_verdict_on_communication_says_how_gradients_are_sent() -> None:
    def sync(*sizes: int, unused: bool = False, overlap: int = 90) -> Any:
        return {"networks": 1, "bucket_bytes": sizes, "find_unused_parameters": unused, "communication_ns": 100,
                "overlap_ns": overlap}  # fmt: skip

    row = a_verdict("communication-bound", about="communication", next_step="overlap it")
    told = verdicts.name_sync(row, sync(12_607_488, overlap=10)).next_step
    assert told.startswith("gradients are sent in 1 bucket of 12 MB, ") and "set bucket_cap_mb=3" in told
    assert told.endswith(": overlap it")
    mended, unused = (verdicts.name_sync(row, sync(*[2_101_248] * 6, unused=one)).next_step for one in (False, True))
    assert "bucket_cap_mb" not in mended and "find_unused" not in mended
    assert "find_unused_parameters=True looks through the graph in each step" in unused
    other = a_verdict("launch-bound", about="idle_launching")
    assert verdicts.name_sync(other, sync(8)) == other and verdicts.name_sync(row, None) == row


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
