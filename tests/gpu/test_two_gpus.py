"""Several processes with real NCCL on two GPUs: bytes, bandwidth, a late process, split weights, repeated sending.

All tests together take about three minutes.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.tools.torch import collective_tables
from tests.gpu.programs import accumulating, every_operation, late_rank, paused_operation

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="fewer than two NVIDIA GPUs are visible to torch here"
)
PROJECT = Path(__file__).parents[2]
DEVICE, WINDOW = "cuda", 5
# Machines that lend GPUs may share their switch with others, which multicast could disturb.
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# BERT, with sizes that two processes divide, and no dropout, whose random numbers would differ.
SIZES = {"hidden": 256, "heads": 4, "layers": 4, "vocabulary": 1000, "positions": 128, "tokens": 128, "dropout": 0}
LINKS = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")


def run(*words: object, processes: int = 2, **more: str) -> str:
    """Output of a module of the project on so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", *map(str, words)]
    environment = {**os.environ, **QUIET, **more}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def trained(folder: Path, model: str, *words: str, processes: int = 2, **more: str) -> dict[str, Any]:
    """Facts of a training, whose processes' traces are in the folder."""
    (folder / "ranks").mkdir(parents=True)
    traced = ["--ranks", folder / "ranks"] if processes > 1 else []
    files = [
        *traced,
        "--trace",
        folder / "t.json.gz",
        "--operators",
        folder / "o.csv",
        "--facts",
        folder / "facts.json",
    ]
    settings = [f"device={DEVICE}", f"gpus={processes}", "warmup=2", f"window={WINDOW}", *words]
    run("models.run", model, "train", *settings, *files, processes=processes, **more)
    return json.loads((folder / "facts.json").read_text())


def exported(folder: Path, links: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of operations and of skew; AssertionError if an operation was left out."""
    outputs = {name: str(folder / f"{name}.csv") for name in ("collectives", "skew")}
    told: list[str] = []
    collective_tables.export_collectives(str(folder / "ranks"), str(folder / "facts.json"), links, outputs, told.append)
    if DEVICE == "cuda":
        assert not told, told
    found = [pd.read_csv(outputs[name], keep_default_na=False, na_values={"probe_share": ""}) for name in outputs]
    print(f"{folder.name}:\n{found[0].to_string()}\n{found[1].head(20).to_string()}")
    return found[0], found[1]


def traced(
    folder: Path, model: str, *words: str, links: Sequence[str] = (), **more: str
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Facts of a training on two processes, and both tables; repeated once, as torch.profiler may lose first kernels."""
    try:
        return trained(folder / "0", model, *words, **more), *exported(folder / "0", list(links))
    except AssertionError as error:
        print(f"again, as {error}")
        return trained(folder / "1", model, *words, **more), *exported(folder / "1", list(links))


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measured bandwidth of the link."""
    path = tmp_path_factory.mktemp("links") / "links.csv"
    print(run("profzoo.calibration.links", "--device", DEVICE, "--out", path))
    return path


def test_the_link_is_named_and_large_operations_are_faster(probe: Path) -> None:
    table = pd.read_csv(probe, keep_default_na=False)
    assert table["link"].str.startswith(LINKS).all() if DEVICE == "cuda" else True
    rates = table.pivot(index="bytes", columns="collective", values="bus_bytes_per_s")
    assert len(rates.columns) == 5 and (rates.iloc[-1] > 5 * rates.iloc[0]).all()


def test_bytes_bandwidth_and_a_late_process_are_told(probe: Path, tmp_path: Path) -> None:
    words, own = f"module={late_rank.__name__}", {late_rank.FOLDER: str(tmp_path)}
    _, collectives, skew = traced(tmp_path, "late", words, links=[str(probe)], **own)
    (row,) = collectives.to_dict("records")
    assert (row["collective"], row["count"], row["group_size"]) == ("all_reduce", WINDOW, 2)
    assert row["bytes"] == 4 * late_rank.SHAPE["width"] ** 2
    if DEVICE == "cuda":
        (took,) = re.findall(r"took (\d+) ns", run(paused_operation.__name__, row["bytes"]))
        print(f"transfer: {row['transfer_ns']} ns in the traced step, {took} ns by events without a profiler")
        assert row["transfer_ns"] == pytest.approx(float(took), rel=0.15)
        # The probe's calls follow one another. After a pause, the first operation is slower.
        assert 0.4 < row["probe_share"] < 1.2 and row["link"].startswith(LINKS)
    slept = json.loads((tmp_path / "1.json").read_text())
    right = {part: np.median(times) for part, times in slept.items()}
    late = skew[skew["rank"] == 1].pivot_table(index="step", columns="range", values="late_ns", aggfunc="sum")
    for part, ns in right.items():
        assert late[part].median() == pytest.approx(ns, rel=0.02), (part, late[part].tolist(), ns)
    # The other process waits for as long as this one is late.
    whole = sum(right.values())
    waited = skew[skew["rank"] == 0].groupby("step")["waiting_ns"].sum()
    assert waited.median() == pytest.approx(whole, rel=0.02)
    assert late.sum(axis=1).median() == pytest.approx(whole, rel=0.02)
    assert skew.groupby("rank")["last"].sum().to_dict() == {0: 0, 1: WINDOW}


def test_every_operation_is_counted_with_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    run(every_operation.__name__, DEVICE, tmp_path / "ranks")
    (tmp_path / "facts.json").write_text('{"ranks": [{"rank": 0}, {"rank": 1}]}')
    told: list[str] = []
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("collectives", "skew")}
    collective_tables.export_collectives(
        str(tmp_path / "ranks"), str(tmp_path / "facts.json"), [], outputs, told.append
    )
    table = pd.read_csv(outputs["collectives"]).set_index("collective")
    print(table.to_string(), told, sep="\n")
    right = {name: 4 * elements for name, elements in every_operation.WHOLE.items()}
    assert table.loc[list(right), "bytes"].to_dict() == right
    # torch.profiler may lose the first kernels.
    assert table.loc[list(right), "count"].between(every_operation.STEPS - 1, every_operation.STEPS).all()
    # NCCL launches one kernel for a batch, of which torch notes nothing.
    noted = every_operation.SENDS + every_operation.RECEIVES - (2 if DEVICE == "cuda" else 0)
    assert f"{2 * every_operation.STEPS * noted} sends and receives" in told[0]
    assert ("batch_isend_irecv" in told[0]) == (DEVICE == "cuda")


def test_split_weights_compute_the_same_and_send_what_they_should(tmp_path: Path) -> None:
    sizes = [f"{name}={value}" for name, value in SIZES.items()]
    words = ["batch=4", *sizes]
    one = trained(tmp_path / "one", "bert", *words, processes=1)
    found = {"ddp": trained(tmp_path / "ddp", "bert", *words)}
    found["fsdp"], fsdp, _ = traced(tmp_path / "fsdp", "bert", *words, "parallel=fsdp")
    found["tensor"], tensor, _ = traced(tmp_path / "tensor", "bert", *words, "parallel=tensor")
    for kind, other in (("fsdp", found["ddp"]), ("tensor", one)):
        for name in ("losses", "gradient_norms"):
            ours, theirs = (np.array(facts["first_steps"][name]) for facts in (found[kind], other))
            assert ours == pytest.approx(theirs, rel=1e-4), (kind, name)
        assert found[kind]["parameters"] == one["parameters"]
    sent = (fsdp["bytes"] * fsdp["count"]).groupby(fsdp["collective"]).sum() / WINDOW
    whole = 4 * one["parameters"]
    # Each gradient is reduced once. Blocks are gathered for the forward and again for the backward pass.
    # gloo reduces whole buffers, of which it keeps a part.
    assert (
        sent["reduce_scatter" if DEVICE == "cuda" else "all_reduce"] == whole and whole < sent["all_gather"] < 2 * whole
    )
    flow = 4 * 4 * SIZES["tokens"] * SIZES["hidden"]
    rows = tensor[(tensor["collective"] == "all_reduce") & (tensor["bytes"] == flow)]
    # In each layer, once in the forward and once in the backward pass.
    assert rows["count"].sum() == 2 * SIZES["layers"] * WINDOW, tensor.to_string()


def test_stages_of_a_pipeline_compute_the_same_and_are_measured(tmp_path: Path) -> None:
    """Numbers are those of one GPU; time and nsys measure the cell, whose sends and receives are communication."""
    own = {**SIZES, "batch": 4, "accumulate": 4}
    words = [f"{name}={value}" for name, value in own.items()]
    one = trained(tmp_path / "one", "bert", *words, processes=1)
    two = trained(tmp_path / "two", "bert", *words, "parallel=pipeline")
    for name in ("losses", "gradient_norms"):
        ours, theirs = (np.array(facts["first_steps"][name]) for facts in (two, one))
        assert ours == pytest.approx(theirs, rel=1e-4), name
    assert (two["parameters"], two["items"]) == (one["parameters"], one["items"])
    results = tmp_path / "results"
    cell = {"bert": {**own, "gpus": 2, "parallel": "pipeline"}}
    profile_trainings(results, cell, "tables/cells.csv", "bert/train.kernels.csv")
    assert pd.read_csv(results / "tables" / "cells.csv")["step_ns"].gt(0).all()
    kernels = pd.read_csv(results / "bert" / "train.kernels.csv", keep_default_na=False)
    print(kernels[["kernel", "class", "range", "launches", "total_ns"]].to_string())
    assert {"forward", "backward", "optimizer"} <= set(kernels["range"])
    # Of the first stage: it sends each batch on and gets its gradient, and reduces that of the tied embeddings.
    told = kernels[kernels["class"] == "communication"].groupby("range")["launches"].sum()
    steps = len(pd.read_csv(results / "bert" / "train.nsys-steps.csv"))
    assert told["backward"] >= steps and told[""] >= own["accumulate"] * told["backward"], told


def profile_trainings(results: Path, cells: dict[str, Any], *files: str) -> None:
    """Have snakemake make files of trainings under nsys, by their settings, in a folder of results."""
    words = ["tool=nsys", "phases=train", f"models={','.join(cells)}", f"device={DEVICE}"]
    words += [f"settings={json.dumps(cells)}", f"pathvars={{results: {results}}}"]
    words += ["variables=TORCH_SYMM_MEM_DISABLE_MULTICAST,NVSHMEM_DISABLE_NVLS"]
    command = ["snakemake", *(str(results / file) for file in files), "--nolock", "--resources", "gpu=2", "-j1"]
    command += ["--config", *words]
    done = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False, env={**os.environ, **QUIET}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_gradients_that_are_sent_repeatedly_have_a_verdict(tmp_path: Path) -> None:
    """The verdict is there without no_sync alone, and the gain that it expects is what no_sync brings."""
    results = tmp_path / "results"
    cells = {"often": False, "once": True}
    # So wide that the GPU is the limit with gradients sent once, too: on a slow CPU, nothing would be gained.
    sizes = {"width": 8192, "layers": 2} if DEVICE == "cuda" else {}
    own = {name: {"module": accumulating.__name__, "gpus": 2, "once": once, **sizes} for name, once in cells.items()}
    profile_trainings(results, own, "tables/verdicts.csv", "tables/cells.csv")
    verdicts = pd.read_csv(results / "tables" / "verdicts.csv", keep_default_na=False, na_values={"gain": ""})
    print(verdicts[["model", "level", "verdict", "gain"]].to_string())
    found = verdicts[verdicts["verdict"] == "repeated gradient synchronisation"]
    assert found["model"].tolist() == ["often"], verdicts["verdict"].tolist()
    for name in cells:
        # Processes whose windows open apart would wait for each other in the first step, which no step's row contains.
        kernels = pd.read_csv(results / name / "train.kernels.csv")
        talking = kernels.loc[kernels["class"] == "communication", "total_ns"].sum()
        rows = pd.read_csv(results / name / "train.nsys-steps.csv")
        assert talking == pytest.approx(rows["communication_ns"].mean(), rel=0.15), name
    cell_times = pd.read_csv(results / "tables" / "cells.csv").set_index("model")["step_ns"]
    measured = cell_times["often"] / cell_times["once"]
    (expected,) = found["gain"]
    assert expected == pytest.approx(measured, rel=0.15), (expected, measured)
