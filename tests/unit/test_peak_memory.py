"""harness/peak_memory: what a step holds in memory and for what, on networks of known sizes and by events written by hand."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from profzoo import run
from profzoo.cell import settings
from profzoo.errors import DataError
from profzoo.harness import interface, ranges
from profzoo.harness.step import memory_remedies, peak_memory, step_loop, training_step
from profzoo.harness.step.peak_memory import KnownAddresses
from profzoo.io import csv_tables as reading
from profzoo.tools.time import tables
from tests import zoo
from tests.harness_cells import cell, functions

CPU = torch.device("cpu")


BATCH, WIDE, HIDDEN, CLASSES = 64, 512, 1024, 16


KNOWN = f"""
import torch
from torch import nn

WORKLOADS = {{"trimmed": {{"train": {{"batch": {BATCH}}}, "inference": {{"batch": {BATCH}}}}}}}

def build(shape):
    return nn.Sequential(nn.Linear({WIDE}, {HIDDEN}), nn.ReLU(), nn.Linear({HIDDEN}, {CLASSES}))

def sample(shape, generator):
    return torch.randn({WIDE}, generator=generator), 0
"""


WEIGHTS = 4 * (WIDE * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)


INPUTS, HIDDEN_BYTES = 4 * BATCH * WIDE + 8 * BATCH, 4 * BATCH * HIDDEN

# What states of the optimizer are a part of.
BYTES = ["begin_bytes", "end_bytes", "peak_bytes", "optimizer_bytes"]


REMEDIES = settings.name_remedies(zoo.cell("bert", batch=1))


def held(folder: Path, monkeypatch: pytest.MonkeyPatch, phase: str, *words: str) -> pd.DataFrame:
    """The rows of the known network, by range; of modules and remedies, by module and remedy."""
    (folder / "known.py").write_text(KNOWN)
    monkeypatch.syspath_prepend(str(folder))
    files = ["--memory", str(folder / "m.csv"), "--facts", str(folder / "f.json"), "--steps", str(folder / "s.csv")]
    assert run.main(["mine", phase, "module=known", "device=cpu", "warmup=1", "window=2", *files, *words]) == 0
    rows = reading.read(folder / "m.csv", tables.MEMORY)
    names = rows["module"].where(rows["module"] != "", rows["remedy"])
    return rows.set_index(names.where(names != "", rows["range"]))


def test_a_training_step_holds_what_its_sizes_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held(tmp_path, monkeypatch, "train")
    modules, rows = rows[rows["module"] != ""], rows[rows["module"] == ""]
    assert list(rows.index) == ["step", "transfer", "forward", "loss", "backward", "optimizer"]
    assert (rows["weights_bytes"] == WEIGHTS).all() and (rows["inputs_bytes"] == INPUTS).all()
    # Adam's two averages, and a count of four bytes for each of four parameters.
    assert (rows["optimizer_bytes"] == 2 * WEIGHTS + 16).all() and (rows["other_bytes"] == 0).all()
    # What ReLU takes and what it makes.
    assert rows.loc["forward", "activations_bytes"] == 2 * HIDDEN_BYTES and rows.loc["forward", "gradients_bytes"] == 0
    assert rows.loc["optimizer", "gradients_bytes"] == WEIGHTS
    # Outputs and loss are there until the step's end.
    before = 3 * WEIGHTS + 16 + INPUTS
    assert rows.loc["optimizer", "end_bytes"] == before + 4 * BATCH * CLASSES + 4
    assert rows.loc["step", ["begin_bytes", "end_bytes"]].tolist() == [before, before]
    assert rows.loc["step", "peak_bytes"] == rows["peak_bytes"].max()
    assert json.loads((tmp_path / "f.json").read_text())["memory"]["wall_ns"] > 0
    # Each layer has what is its own at the peak, which is within the update.
    assert set(modules.index) == {"0", "2", "(step)"}
    for name, numbers in {"0": WIDE * HIDDEN + HIDDEN, "2": HIDDEN * CLASSES + CLASSES}.items():
        own = modules.loc[name, ["weights_bytes", "gradients_bytes", "optimizer_bytes"]]
        assert own.tolist() == [4 * numbers, 4 * numbers, 8 * numbers + 8]
    assert modules["peak_bytes"].is_monotonic_decreasing


def test_remedies_leave_what_arithmetic_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held(
        tmp_path,
        monkeypatch,
        "train",
        "--remedies",
        json.dumps(REMEDIES | {"batch1024": {"batch": 1024}}),
        "batch=2048",
    )
    # As ReLU's backward pass ends: its output and two gradients; of the last layer its outputs and its gradients.
    kept = WEIGHTS + 4 * (HIDDEN + 1) * CLASSES
    hidden, inputs, outputs = 32 * HIDDEN_BYTES, 32 * INPUTS, 2048 * 4 * CLASSES + 8
    assert rows.loc["step", "peak_bytes"] == kept + 2 * WEIGHTS + 16 + 3 * hidden + inputs + outputs
    assert set(rows.index[-5:]) == {"checkpoint", "bf16", "fused", "batch1024", "optimizer8bit"}
    half = kept + 2 * WEIGHTS + 16 + (3 * hidden + inputs + outputs + 8) // 2
    assert rows.loc["batch1024", "peak_bytes"] == half
    # Two states of a byte per number and four per 256 numbers, but of four bytes for each bias.
    states = 2 * (WIDE * HIDDEN + HIDDEN * CLASSES) * 260 // 256 + 8 * (HIDDEN + CLASSES)
    assert rows.loc["optimizer8bit", "optimizer_bytes"] == states
    less = rows.loc["optimizer8bit", BYTES] - rows.loc["backward", BYTES]
    assert less["optimizer_bytes"] < 0 and (less == less["optimizer_bytes"]).all()
    assert rows.loc["fused", "peak_bytes"] == rows.loc["step", "peak_bytes"]
    for remedy, word in {"checkpoint": "checkpoint=true", "bf16": "precision=bf16"}.items():
        tried = held(tmp_path, monkeypatch, "train", "batch=2048", word)
        # A checkpoint keeps the state of the generator of random numbers, which is 5 kB.
        assert rows.loc[remedy, "peak_bytes"] == pytest.approx(tried.loc["step", "peak_bytes"], abs=11_000)


def test_a_step_whose_update_holds_most_is_cured_by_a_fused_one() -> None:
    one = zoo.cell("bert", layers=1)
    rows = stock(one, interface.load_functions(one["module"]), zoo.batch(one)).to_dict("records")
    found = {row["remedy"]: row for row in memory_remedies.predict_remedies(one, CPU, REMEDIES, rows)}
    fused = stock({**one, "optimizer": "fused"}, interface.load_functions(one["module"]), zoo.batch(one))
    assert found["fused"]["peak_bytes"] == fused["peak_bytes"][0] < 0.9 * rows[0]["peak_bytes"]
    assert (found["fused"]["range"], found["checkpoint"]["range"]) == ("backward", "optimizer")


def test_what_cannot_be_predicted_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    one = zoo.cell("lstm", batch=1)
    rows = stock(one, interface.load_functions(one["module"]), zoo.batch(one)).to_dict("records")
    # An update in one kernel changes no pass, which oneDNN's workspaces are of; nor do states.
    found = [row["remedy"] for row in memory_remedies.predict_remedies(one, CPU, REMEDIES, rows)]
    told = capsys.readouterr().err
    assert found == ["fused", "optimizer8bit"] and "the memory of bf16 is not known: up to 1 MB" in told
    assert "the memory of checkpoint was not predicted: ConfigError" in told
    for unlike in ({"compile": True}, {"precision": "fp8"}, {"gpus": 2}, {"phase": "inference"}):
        assert memory_remedies.predict_remedies({**one, **unlike}, CPU, REMEDIES, rows) == []


def of_range(name: str, peak: int, workspace: int = 0) -> dict[str, Any]:
    """What a range holds at its peak: activations, and a workspace."""
    none = dict.fromkeys((f"{part}_bytes" for part in (*peak_memory.HELD, *peak_memory.MOMENTS)), 0)
    return none | {
        "range": name,
        "peak_bytes": peak,
        "workspace_bytes": workspace,
        "activations_bytes": peak - workspace,
    }


def test_a_peak_that_libraries_may_change_is_not_known() -> None:
    def expected(workspace: int, left: int, name: str = "backward", shown: int = 80) -> list[int]:
        step = of_range("step", 100, workspace), of_range("step", shown), of_range("step", left)
        part = of_range(name, 100, workspace), of_range(name, shown), of_range(name, left)
        return [row["peak_bytes"] for row in memory_remedies._expected([step, part], "bf16")]

    # By 40 less; of what remains 20 may be of a library, or just 3. What changes nothing is known.
    assert (expected(20, 40), expected(3, 60, shown=100), expected(20, 80)) == ([], [60], [100])
    # The peak without a workspace is at another moment, though fake tensors show as much as was measured.
    assert expected(20, 60, shown=100) == []
    assert expected(20, 40, "optimizer") == [60]
    # Another range holds nearly as much, and is sure; the first may still hold what it did.
    sure, doubted = (
        [of_range("forward", size) for size in (80, 80, 75)],
        [of_range("backward", *sizes) for sizes in ((100, 20), (80,), (30,))],
    )
    parts = [tuple(doubted), tuple(doubted), tuple(sure)]
    assert memory_remedies._expected(parts, "bf16") == []


def test_averages_of_weights_stay_beside_states_in_8_bits() -> None:
    built = memory_remedies.build(zoo.cell("bert", layers=1))
    weights = sum(weight.nbytes for weight in built.network.parameters())
    rows = [of_range(name, 0) | {"optimizer_bytes": 3 * weights} for name in ("step", "backward")]
    (row,) = memory_remedies._with_eight_bits(rows, built, CPU, "8bit", averages=True)
    assert row["optimizer_bytes"] == memory_remedies._eight_bit_states(built, CPU) + weights
    # States that are in 8 bits already, beside averages.
    assert memory_remedies._with_eight_bits([row], built, CPU, "8bit", averages=True) == []


def test_settings_that_do_not_go_together_are_no_remedies() -> None:
    one = zoo.cell("bert", batch=1)
    assert list(settings.name_remedies(one)) == ["checkpoint", "bf16", "fused", "optimizer8bit"]
    for given, left in (
        ({"device": "cuda", "graph": True, "warmup": 3}, ["bf16", "fused"]),
        ({"channels_last": True}, ["checkpoint", "bf16", "fused"]),
        ({"optimizer": "8bit"}, ["checkpoint", "bf16"]),
    ):
        assert list(settings.name_remedies({**one, **given})) == left


def test_sparse_gradients_are_counted() -> None:
    one = zoo.cell("dlrm")
    found = memory_remedies.imagine_step(one, memory_remedies.build(one), CPU)
    # Of embeddings, sparse gradients have fewer numbers than weights.
    assert 0 < max(row["gradients_bytes"] for row in found) < 2 * found[0]["weights_bytes"]


def test_recurrent_layers_of_cudnn_have_gradients_on_fake_tensors() -> None:
    """Autograd's engine runs no node of a GPU without one, so that the node is called by itself."""
    watch = memory_remedies.StorageWatch(torch.device("cuda"))
    with FakeTensorMode(allow_non_fake_inputs=True), watch:
        with torch.device("cuda"):
            weights = list(nn.LSTM(30, 8, 2, bidirectional=True).parameters())
            inputs, state = torch.empty(4, 16, 30, requires_grad=True), torch.empty(4, 4, 8)
        made = torch.ops.aten._cudnn_rnn(
            inputs, weights, 4, None, state, state, 2, 8, 0, 2, True, 0.0, True, True, [], None
        )
        found = made[0].grad_fn(torch.empty_like(made[0]), None, None)
    shapes = [one.shape for one in found if one is not None]
    assert shapes == [inputs.shape, *(one.shape for one in weights)]


def test_inference_holds_no_gradients_and_no_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held(tmp_path, monkeypatch, "inference")
    rows = rows[rows["module"] == ""]
    assert list(rows.index) == ["step", "transfer", "forward"]
    assert not rows[["optimizer_bytes", "gradients_bytes"]].any(axis=None)
    assert rows.loc["step", "activations_bytes"] == 2 * HIDDEN_BYTES
    assert rows.loc["step", "peak_bytes"] == WEIGHTS + INPUTS + 2 * HIDDEN_BYTES


def test_the_window_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and weights are those of a run that takes no stock."""
    (tmp_path / "known.py").write_text(KNOWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for words in ([], [f"--memory={tmp_path / 'm.csv'}"]):
        files = [f"--facts={tmp_path / 'f.json'}", f"--steps={tmp_path / 's.csv'}", f"--save={tmp_path / 'w.pt'}"]
        assert run.main(["mine", "train", "module=known", "device=cpu", "window=2", *files, *words]) == 0
        facts = json.loads((tmp_path / "f.json").read_text())
        assert facts["steps"] == 2 == len(pd.read_csv(tmp_path / "s.csv"))
        found.append((facts["loss"], torch.load(tmp_path / "w.pt")["0.weight"]))
    assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])


def stock(one: dict[str, Any], model: interface.ModelFunctions, batch: Any) -> pd.DataFrame:
    """The rows after a step."""
    network = step_loop.set_up_network(step_loop.build_network(one, model, None), one, CPU)
    repeated = step_loop.make_step(one, model, network, CPU, ranges.Ranges())
    repeated.step(repeated.transfer(batch, CPU))
    return pd.DataFrame(peak_memory.measure_memory(batch, repeated, network, CPU))


def in_turn(trainer: training_step.Trainer, batch: Any) -> torch.Tensor:
    for network, optimizer in zip((trainer.network, trainer.others), trainer.optimizers, strict=True):
        with trainer.forward():
            outputs = network(batch)
        with trainer.loss():
            loss = outputs.sum()
        trainer.update(loss, optimizer)
    return loss


def test_networks_that_train_in_turn_have_their_gradients_each() -> None:
    """Of 4 x 4 weights with their biases, and of 4 x 8."""
    model = functions(
        build=lambda shape: nn.Linear(4, 4), others=lambda shape: nn.Linear(4, 8), training_step=in_turn,
        optimizers=lambda *networks: [torch.optim.SGD(one.parameters(), lr=0.1) for one in networks],
    )  # fmt: skip
    one = cell(compile=False, cudnn_benchmark=False, deterministic=False, ema=0.5)
    rows = stock(one, model, torch.ones(3, 4))
    others = rows[rows["module"].str.startswith("(others)")]
    assert set(others["weights_bytes"]) == {4 * 40}
    rows = rows[rows["module"] == ""]
    assert rows["range"].tolist()[2:] == ["forward", "loss", "backward", "optimizer"] * 2
    # The averages of the network's weights.
    assert set(rows["optimizer_bytes"]) == {4 * 20}
    assert rows[rows["range"] == "optimizer"]["gradients_bytes"].tolist() == [4 * 20, 4 * 40]


def test_checkpoints_hold_fewer_activations() -> None:
    held = []
    for checkpoint in (False, True):
        one = zoo.cell("bert", layers=4, tokens=32, checkpoint=checkpoint)
        rows = stock(one, interface.load_functions(one["module"]), zoo.batch(one))
        held.append(rows.iloc[0]["activations_bytes"])
    assert held[1] < 0.7 * held[0]


def test_a_table_whose_parts_do_not_add_up_is_refused(tmp_path: Path) -> None:
    row = dict.fromkeys(peak_memory.COLUMNS, 0) | {"range": "step", "peak_bytes": 3, "weights_bytes": 2}
    peak_memory.write_rows([row], tmp_path / "m.csv")
    with pytest.raises(DataError, match="row 1: what is held adds up to another peak"):
        reading.read(tmp_path / "m.csv", tables.MEMORY)
    assert tuple(tables.HELD) == peak_memory.HELD and {*tables.MEMORY.columns, *tables.MEMORY.optional} == set(
        peak_memory.COLUMNS
    )


def span(name: str, at: float, long: float, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "tid": 1, "ts": at, "dur": long, "args": {}}


def move(at: float, address: int, size: int, device: int = 0) -> dict[str, Any]:
    """What is allocated, or given back, at a moment."""
    told = {"Device Type": device, "Addr": address, "Bytes": size}
    return {"name": peak_memory.MEMORY, "tid": 1, "ts": at, "args": told}


# In an operator 100 bytes at 1 that it gives back itself, by way of one that allocates for it, and 40 at 2 that stay.
# The optimizer takes 7, and 500 that were there before go at its end; at 2 there is something else by then.
STEP = [
    *(span(f"profzoo:{name}", at, long, "user_annotation") for name, at, long in
      (("step", 0, 100), ("forward", 10, 30), ("backward", 50, 20), ("optimizer", 80, 10))),
    span("aten::conv2d", 12, 10), span("aten::empty", 13, 1), move(13.5, 1, 100), move(15, 2, 40), move(20, 1, -100),
    span("aten::mm", 52, 10), move(53, 3, 25), move(75, 2, -40), move(76, 2, 11),
    span("aten::add", 82, 2), move(83, 4, 7), move(88, 9, -500), move(14, 5, 10_000, device=1),
]  # fmt: skip


BEFORE = {("weights", "a"): 1000, peak_memory.EARLIER: 600}


def test_what_a_step_holds_is_followed_block_by_block() -> None:
    known = [KnownAddresses("gradients", "backward", 0, {3: "a", 2: "b"})]
    rows = peak_memory.memory_rows(STEP, 0, BEFORE, known)
    found = {row["range"]: row for row in rows if not row["module"]}
    assert [row["order"] for row in found.values()] == [0, 1, 2, 3]
    assert list(found) == ["step", "forward", "backward", "optimizer"]
    sizes = {name: [row[f"{part}_bytes"] for part in ("begin", "peak", "end")] for name, row in found.items()}
    assert sizes == {
        # 1600 before; 1740 with both blocks; 1600 + 25 + 11 + 7 - 500 in the end.
        "step": [1600, 1740, 1143], "forward": [1600, 1740, 1640], "backward": [1640, 1665, 1665], "optimizer": [1636, 1643, 1143],
    }  # fmt: skip
    purposes = {
        name: {part: row[f"{part}_bytes"] for part in peak_memory.HELD if row[f"{part}_bytes"]}
        for name, row in found.items()
    }
    assert purposes == {
        "step": {"weights": 1000, "workspace": 100, "gradients": 40, "other": 600},
        "forward": {"weights": 1000, "workspace": 100, "gradients": 40, "other": 600},
        # What is at 2 as the backward pass ends is a gradient from the first, and what comes there later is not.
        "backward": {"weights": 1000, "gradients": 65, "other": 600},
        "optimizer": {"weights": 1000, "gradients": 25, "activations": 11, "workspace": 7, "other": 600},
    }  # fmt: skip


def test_only_allocations_of_the_device_count() -> None:
    (step, *_) = peak_memory.memory_rows(STEP, 1, {}, [])
    assert [step[f"{part}_bytes"] for part in ("begin", "peak", "end")] == [0, 10_000, 10_000]


def test_sizes_are_of_storages_each_once() -> None:
    whole = torch.zeros(10)
    found = peak_memory._sizes([whole, whole[2:4], torch.zeros(3, dtype=torch.int64)], CPU)
    assert sorted(found.values()) == [24, 40] and peak_memory._sizes([whole], torch.device("cuda")) == {}
    network, optimizer = nn.BatchNorm1d(4), None
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9)
    network(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    # Weight, bias and two running values of four numbers, and a count of eight bytes; momentum of the first two.
    weights = peak_memory._weights([nn.Sequential(network)])
    before = peak_memory._before(weights, [optimizer], {"x": torch.zeros(5)}, CPU, {})
    assert before == {("weights", "0"): 4 * 16 + 8, ("optimizer", "0"): 2 * 16, ("inputs", "(step)"): 20}


def node(name: str, at: float, long: float, sequence: int, thread: int = 1) -> dict[str, Any]:
    """An operator of the forward pass that a node of autograd was made by, or that node, in another thread."""
    found = span(name, at, long)
    return found | {"tid": thread, "args": {"Sequence number": sequence, "Fwd thread id": thread - 1}}


def test_a_block_belongs_to_the_module_whose_forward_pass_or_gradient_allocated_it() -> None:
    """Layer b is within a; gradients are in a thread of their own, in which b's forward pass runs once more."""
    b = "profzoo:module:a.b:Linear"
    events = [
        user("step", 0, 99), user("backward", 50, 40), span("profzoo:module:a:Block", 1, 9), move(2, 1, 1),
        span(b, 3, 4), node("aten::mm", 4, 1, 7), move(4.5, 2, 2), move(8, 3, 4), move(20, 4, 8),
        node("MmBackward0", 60, 5, 7, thread=2), {**move(61, 5, 16), "tid": 2}, {**move(70, 6, 32), "tid": 2},
        node("CheckpointBackward", 80, 9, 99, thread=2), {**span(b, 81, 4), "tid": 2}, {**move(82, 7, 64), "tid": 2},
        {**move(83, 8, 128), "tid": 2},
    ]  # fmt: skip
    known = [KnownAddresses("gradients", "backward", 0, {8: "c"})]
    found = peak_memory.memory_rows(events, 0, {("weights", "c"): 1000, ("other", "(step)"): 7}, known)
    assert [(row["module"], row["peak_bytes"]) for row in found if row["module"]] == [
        ("c", 1128), ("a.b", 2 + 16 + 64), ("(step)", 7 + 8 + 32), ("a", 1 + 4),
    ]  # fmt: skip
    assert found[0]["peak_bytes"] == 1262 and {row["order"] for row in found} == set(range(6))


def test_what_the_allocator_holds_for_nobody_is_told_at_the_peak() -> None:
    moves = [move(1, 1, 10), move(2, 2, 20), move(3, 2, -20)]
    for one, reserved, allocated in zip(moves, (32, 64, 64), (10, 30, 10), strict=True):
        one["args"] |= {"Total Reserved": reserved, "Total Allocated": allocated}
    assert [row.get("unused") for row in held_by([user("step", 0, 9), user("loss", 2.5, 9), *moves])] == [34, 34]


def user(name: str, at: float, long: float) -> dict[str, Any]:
    return span(f"profzoo:{name}", at, long, "user_annotation")


def test_a_predicted_range_ends_with_no_more_than_its_peak() -> None:
    rows = [of_range("step", peak) | {"end_bytes": end} for peak, end in ((100, 100), (90, 80), (60, 60))]
    found = memory_remedies._shifted(*rows)
    assert (found["peak_bytes"], found["end_bytes"]) == (70, 70)


def test_states_that_have_no_form_in_8_bits_are_no_remedy() -> None:
    network = torch.nn.Linear(64, 64)
    for decay, known in ((0.0, True), (0.1, False)):
        model = interface.ModelFunctions(
            build=lambda shape: network,
            optimizer=lambda weights, decay=decay: torch.optim.Adam(weights, weight_decay=decay),
        )
        built = memory_remedies.Built(model, network, torch.nn.Identity())
        assert (memory_remedies._eight_bit_states(built, CPU) > 0) == known


def test_the_allocators_peak_counts_from_what_is_held_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: seen.append("held") or 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: seen.append("reset"))
    watch = peak_memory.MemoryWatch([], [], None, torch.device("cuda"))
    assert seen == []
    with watch.observing():
        assert seen == ["held", "reset"]


def held_by(
    events: list[dict], known: list[KnownAddresses] | None = None, before: dict[tuple[str, str], int] | None = None
) -> list[dict]:
    """Rows of ranges, without what is 0 or empty."""
    found = peak_memory.memory_rows(events, 0, before or {}, known or [])
    return [
        {key.removesuffix("_bytes"): value for key, value in row.items() if value} for row in found if not row["module"]
    ]


def test_bounds_of_ranges_and_operators_belong_to_them() -> None:
    # What comes as a range begins is behind its beginning; as it ends, within it.
    assert held_by([user("step", 10, 10), move(10, 1, 4), move(20, 2, 8), move(20.5, 3, 16)]) == [
        {"range": "step", "peak": 12, "end": 12, "activations": 12}
    ]
    # What its operator gives back as it ends is its workspace; later it is not.
    for at, kind in ((15, "workspace"), (15.5, "activations")):
        (row,) = held_by([user("step", 0, 20), span("aten::mm", 10, 5), move(10, 1, 4), move(at, 1, -4)])
        assert row == {"range": "step", "peak": 4, kind: 4}
    # As the optimizer begins and as it ends, what is taken is its workspace.
    for at, kind in ((9.5, "activations"), (10, "workspace"), (15, "workspace"), (15.5, "activations")):
        row, *_ = held_by([user("step", 0, 20), user("optimizer", 10, 5), move(at, 1, 4)])
        assert row == {"range": "step", "peak": 4, "end": 4, kind: 4}


def test_of_what_is_known_counts_who_is_there_at_that_moment() -> None:
    """Two ranges of one name end at 5 and at 15; at address 1 one block follows another."""
    events = [user("step", 0, 20), user("backward", 1, 4), user("backward", 11, 4)]
    for begin, end, number, kind in (
        (5, None, 0, "gradients"), (5.5, None, 0, "activations"), (5.5, None, 1, "gradients"), (2, 5, 0, "activations"),
        (2, 5.5, 0, "gradients"), (2, 15, 1, "activations"), (2, 16, 1, "gradients"),
    ):  # fmt: skip
        moves = [move(begin, 1, 4), *([move(end, 1, -4)] if end else [])]
        row, *_ = held_by([*events, *moves], [KnownAddresses("gradients", "backward", number, {1: "a"})])
        assert row[kind] == 4 == row["peak"]
    row, *_ = held_by([*events, move(2, 2, 4)], [KnownAddresses("gradients", "backward", 0, {1: "a"})])
    assert row["activations"] == 4


def test_ranges_that_begin_together_are_told_the_longer_first_and_the_first_peak_counts() -> None:
    events = [user("data", 0, 5), user("step", 0, 20), user("later", 30, 1)]
    events += [span("profzoo:other", 0, 9, "gpu_user_annotation")]
    events += [move(1, 1, 4), move(2, 1, -4), move(3, 2, 4), move(4, 9, -3)]
    found = held_by(events, [KnownAddresses("inputs", "data", 0, {2: "a"})], {peak_memory.EARLIER: 10})
    # 14 with either block; at the first, of activations, though inputs come up to it.
    assert [(row["range"], row.get("order", 0)) for row in found] == [("step", 0), ("data", 1), ("later", 2)]
    assert found[0] == {"range": "step", "begin": 10, "peak": 14, "end": 11, "other": 10, "activations": 4}
    assert found[2] == {"order": 2, "range": "later", "begin": 11, "peak": 11, "end": 11, "other": 7, "inputs": 4}


def test_of_operators_within_each_other_the_innermost_that_does_more_than_allocate_owns() -> None:
    events = [user("step", 0, 50), span("aten::linear", 0, 30), span("aten::mm", 5, 10), span("aten::empty", 6, 1)]
    other = {**span("aten::add", 6, 40), "tid": 2}
    (row,) = held_by(
        [*events, other, move(6.5, 1, 8), move(16, 1, -8), move(20, 2, 2), move(29, 2, -2), move(31, 3, 1)]
    )
    # The first is given back behind mm, which took it; the second within linear.
    assert row == {"range": "step", "peak": 8, "end": 1, "activations": 8}
    (row,) = held_by([*events, other, move(20, 2, 2), move(29, 2, -2)])
    assert row == {"range": "step", "peak": 2, "workspace": 2}


def test_a_byte_is_a_block() -> None:
    (row,) = held_by([user("step", 0, 9), move(5, 1, 1)], [KnownAddresses("inputs", "step", 0, {1: "a"})])
    assert row == {"range": "step", "peak": 1, "end": 1, "inputs": 1}


def test_what_happens_at_one_moment_goes_by_its_number() -> None:
    given = move(5, 1, -4)
    given["args"]["Ev Idx"] = 1
    # One without a number is the first: 4 are taken, and given back behind it.
    (row,) = held_by([user("step", 0, 9), given, move(5, 1, 4)])
    assert row == {"range": "step", "peak": 4, "activations": 4}
