"""What repeated calls cost, by the table of layers; and a model whose step calls its encoder twice, run as a job does."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from profzoo import run
from profzoo.tables import layers as layer_tables
from profzoo.verdicts import repeated_verdicts, verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.cell_facts import read_cell_facts
from tests.unit.test_verdicts import made as a_step

FOUND = "repeated work"
RULES = verdict_rules.load_rules()
ENCODER = {"module": "encoder", "type": "ResNet", "calls": 2, "places": ["train.py:8", "train.py:9"]}
SHAPE = {"width": 32, "twice": True}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests before these may have compiled something in this process, after which no step is looked at."""
    from torch._dynamo import utils

    monkeypatch.setattr(utils, "counters", defaultdict(Counter))


def tree(**calls: float) -> pd.DataFrame:
    """Layers of a cell whose kernels take 1 ms: 400 µs in the encoder's forward pass, 100 in the head's."""
    rows = [("encoder", "forward", 4e5, 40), ("encoder", "backward", 2e5, 40), ("head", "forward", 1e5, 10)]
    made = [{"module": module, "direction": way, "total_ns": ns, "launches": count, "calls": calls.get(module, 2.0)}
            for module, way, ns, count in rows]  # fmt: skip
    return pd.DataFrame(made).reindex(columns=layer_tables.LAYERS)


def judged(found: list[Any], layers: pd.DataFrame | None, idle: float = 0.0) -> list[Any]:
    """Verdicts on a step whose kernels take all of it, but for what it idles as the host is late."""
    step = a_step({"idle_host": idle} if idle else {})
    judge = verdicts.judge_cell(step, {}, RULES, {}, {})
    return list(repeated_verdicts.judge_repeated(judge, found, layers, 1e6))


def test_half_of_the_forward_pass_of_a_module_that_is_called_twice_is_not_needed() -> None:
    (row,) = judged([ENCODER], tree())
    assert row.verdict == FOUND and row.gain == pytest.approx(1 / 0.8) and row.gain_low == 1
    assert row.next_step.startswith(
        "encoder (ResNet) is called 2 times on the same inputs, with the same result (train.py:8, train.py:9): call it once"
    )
    # Of four calls, one is not needed.
    (row,) = judged([ENCODER], tree(encoder=4))
    assert row.gain == pytest.approx(1 / 0.9)
    (row,) = judged([ENCODER, ENCODER | {"module": "head", "calls": 4}], tree(head=4))
    assert row.gain == pytest.approx(1 / (1 - 0.2 - 0.075))


def test_launches_that_go_are_not_waited_for() -> None:
    (row,) = judged([ENCODER], tree(), idle=0.5)
    # A fifth of the kernels' half of the step, and what the host takes to launch them.
    assert row.gain > 1 / (1 - 0.2 * 0.5)


@pytest.mark.parametrize(
    ("found", "layers"),
    [
        ([], tree()),
        ([ENCODER], None),
        ([ENCODER | {"module": "head"}], tree(head=8)),
        ([ENCODER | {"module": "elsewhere"}], tree()),
    ],
    ids=["nothing", "no layers", "too little", "an unknown layer"],
)
def test_nothing_is_told_where_it_costs_little_or_nobody_knows(found: list[Any], layers: pd.DataFrame | None) -> None:
    assert not judged(found, layers)


def test_on_a_cpu_operators_within_the_module_count() -> None:
    rows = [
        ("encoder.0", "forward", 3.0),
        ("encoder", "forward", 1.0),
        ("encoder", "backward", 2.0),
        ("head", "forward", 4.0),
    ]
    operators = pd.DataFrame(rows, columns=["module", "direction", "total_ns"])
    given = operators, {"forward": 8.0, "backward": 2.0}, {}
    (row,) = repeated_verdicts.judge_repeated_on_cpu(RULES["rules"], [ENCODER], *given)
    assert row.verdict == FOUND and row.gain == pytest.approx(1 / 0.8)
    assert not list(repeated_verdicts.judge_repeated_on_cpu(RULES["rules"], [], *given))


class Network(nn.Module):
    """An encoder that is called once for its output and, if asked, once more for a penalty."""

    def __init__(self, width: int, twice: bool) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(width, width), nn.Linear(width, 2)
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, width) to two scores for each sample."""
        scores: Tensor = self.head(self.encoder(x))
        return scores + self.encoder(x).mean() if self.twice else scores


def build(shape: SimpleNamespace) -> nn.Module:
    """Random weights."""
    return Network(shape.width, shape.twice)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A vector and its class."""
    return torch.randn(shape.width, generator=generator), torch.zeros((), dtype=torch.int64)


@pytest.mark.parametrize(("twice", "right"), [(True, [("encoder", "Linear", 2)]), (False, [])])
def test_a_job_notes_them_and_tables_read_them(tmp_path: Path, twice: bool, right: list[Any]) -> None:
    facts = tmp_path / "m" / "train.time.csv.json"
    facts.parent.mkdir()
    words = ["repeats", "train", f"module={__name__}", "device=cpu", "window=1", f"twice={str(twice).lower()}"]
    assert run.main([*words, "--facts", str(facts)]) == 0
    found = json.loads(facts.read_text())["repeated_calls"]
    assert [(one["module"], one["type"], one["calls"]) for one in found] == right
    assert all("test_repeated_verdicts.py" in place for one in found for place in one["places"])
    facts.write_text(json.dumps({"cell": {}, "repeated_calls": found}))
    assert read_cell_facts([str(facts)]).noted["m", "train"].repeated == found
