"""Describes a script's process: device, versions, arithmetic and batch; and ends it."""

import os
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from profzoo.harness.compilations import read_compilations
from profzoo.script_harness.outside_settings import is_compiled

if TYPE_CHECKING:
    from profzoo.cell.job_types import PaddedRows, ScriptArithmetic

# A process whose other threads keep it alive after its window is ended by then.
PATIENCE_S = 30.0


def describe_arithmetic(entered: Collection[str], networks: Iterable[nn.Module]) -> "ScriptArithmetic":
    """Return what arithmetic the script uses: autocast, TensorFloat-32, type of most weights, and compilation.

    entered: types of the autocast contexts that it has entered.
    """
    networks = list(networks)
    weights: dict[str, int] = {}
    for network in networks:
        for one in network.parameters():
            name = str(one.dtype).removeprefix("torch.")
            weights[name] = weights.get(name, 0) + one.numel()
    most = max(weights, key=lambda name: weights[name]) if weights else "float32"
    short = {"bfloat16": "bf16", "float16": "fp16"}
    lowered = [short[name] for name in (*sorted(entered), most) if name in short]
    tf32 = torch.backends.cuda.matmul.allow_tf32
    return {
        "precision": lowered[0] if lowered else "tf32" if tf32 else "fp32",
        "compile": any(map(is_compiled, networks)),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def imported_files() -> list[str]:
    """Return the files of the modules that the process has imported, without installed packages and profzoo."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths.add(str(Path(torch.__file__).parents[1]))
    installed = tuple(f"{os.path.realpath(path)}{os.sep}" for path in paths if path)
    ours = f"{Path(__file__).resolve().parents[1]}{os.sep}"
    found = set()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or name == "sitecustomize":
            continue
        real = os.path.realpath(path)
        if real.endswith(".py") and not real.startswith((*installed, ours)) and Path(real).is_file():
            found.add(real)
    return sorted(found)


def describe_work(padding: "Sequence[PaddedRows]", window: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of padding in early batches and of compilations; window: facts of the window."""
    made = read_compilations(window.get("window_began_ns", 0), window.get("window_wall_ns", 0))
    return {**({"padding": padding} if padding else {}), **({"compilations": made} if made else {})}


def end_process() -> None:
    """End the process after its window, as a script ends by itself.

    Raises:
        SystemExit: always, in the main thread.
    """
    watchdog = threading.Timer(PATIENCE_S, end_at_once)
    watchdog.daemon = True
    watchdog.start()
    if threading.current_thread() is not threading.main_thread():
        end_at_once()
    raise SystemExit(0)


def end_at_once() -> None:
    """End the process without running what is left of it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
