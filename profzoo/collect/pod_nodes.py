"""Lets the pods of an indexed Job of Kubernetes be the nodes of cells: the first pod runs a command, the others wait.

python -m profzoo.collect.pod_nodes snakemake all ...

profiles/kubernetes/nodes.yaml starts it in every pod, in the project's folder on a volume that all pods mount. The
first pod (JOB_COMPLETION_INDEX 0) runs the command. Whenever that starts a cell on several nodes, a request in the
folder .snakemake/profzoo/pods asks the other pods to start their processes of the cell. They end with the command.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from profzoo.collect import environment
from profzoo.errors import CollectError

# Variables of the manifest: number of the pod, number of pods, address of the first one, and what is unique to the Job.
INDEX, PODS, FIRST, JOB = "JOB_COMPLETION_INDEX", "PROFZOO_PODS", "PROFZOO_FIRST_POD", "PROFZOO_POD_JOB"
FOLDER = Path(".snakemake/profzoo/pods")
ENDED, REQUEST, CODE, LOG = "ended", ".request", ".code", ".log"
# Seconds between two looks, and seconds without a sign of life after which a request counts as abandoned.
LOOK_S, SILENT_S = 0.5, 60.0
# Variables besides those that change measurements which processes in all pods share; their values are not secrets.
SHARED = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def torchrun_words(nodes: int, gpus: int, index: int, meeting: tuple[str, int], program: Sequence[str]) -> list[str]:
    """Build the command of one pod; index: number of the pod; meeting: address and port of the first pod."""
    torchrun = ["python", "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={gpus}"]
    place = [f"--node-rank={index}", f"--master-addr={meeting[0]}", f"--master-port={meeting[1]}"]
    return [*torchrun, *place, "--no-python", *program]


def launch(nodes: int, gpus: int, program: Sequence[str], given: Mapping[str, str]) -> int:
    """Run a program's processes in the first pods of the Job; returns the exit code. given: this pod's environment.

    Raises:
        CollectError: the Job has too few pods.
    """
    if nodes > (pods := int(given[PODS])):
        raise CollectError(f"nodes = {nodes}, and the Job has {pods} pods: raise completions and {PODS} in nodes.yaml")
    folder, name, meeting = job_folder(given), secrets.token_hex(8), (given[FIRST], free_port())
    request = folder / f"{name}{REQUEST}"
    names = environment.measurement_variables() | {*SHARED}
    asked = {
        "nodes": nodes,
        "gpus": gpus,
        "meeting": meeting,
        "program": list(program),
        "folder": str(Path.cwd()),
        # What the other pods see of their own environments, and values that they take from this one.
        "names": sorted(given),
        "environment": {key: value for key, value in given.items() if key in names},
    }
    _write(request, json.dumps(asked))
    process = subprocess.Popen(torchrun_words(nodes, gpus, 0, meeting, program))
    try:
        others = [folder / f"{name}.{index}{CODE}" for index in range(1, nodes)]
        return _wait(process, request, others)
    finally:
        process.kill()
        request.unlink(missing_ok=True)
        for log in sorted(folder.glob(f"{name}.*{LOG}")):
            print(f"{log.name}:\n{log.read_text(errors='replace')}", file=sys.stderr)


def job_folder(given: Mapping[str, str]) -> Path:
    """Return the folder of this Job's requests, and make it if it does not exist; only its user may read it."""
    folder = FOLDER / given[JOB]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


def free_port() -> int:
    """Return a port of this pod that no program uses."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def _write(path: Path, text: str) -> None:
    """Write a file so that other pods see all of it or nothing; only its user may read it."""
    # A dot before the name would not do, as `Path.glob` finds such files too.
    partial = path.with_name(f"{path.name}.partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.rename(path)


def _wait(process: subprocess.Popen[bytes], request: Path, others: Sequence[Path]) -> int:
    """Wait for the processes of all pods; returns the first exit code that is not 0."""
    left: float | None = None
    while True:
        request.touch()
        codes = [int(path.read_text()) for path in others if path.exists()]
        if failed := [code for code in codes if code]:
            return failed[0]
        own = process.poll()
        if own or (own == 0 and len(codes) == len(others)):
            return own
        if own == 0:
            left = left or time.monotonic()
            if time.monotonic() - left > SILENT_S:
                raise CollectError(
                    f"a pod did not end within {SILENT_S:.0f} s of the first one: see its log by kubectl"
                )
        time.sleep(LOOK_S)


def serve(index: int, given: Mapping[str, str]) -> int:
    """Start this pod's processes of each requested cell, until the first pod's command has ended; returns its code."""
    folder, done = job_folder(given), set[str]()
    while not (ended := folder / ENDED).exists():
        for request in sorted(folder.glob(f"*{REQUEST}")):
            name = request.name.removesuffix(REQUEST)
            if name not in done:
                done.add(name)
                with suppress(FileNotFoundError):
                    _serve_one(json.loads(request.read_text()), request, index, given)
        time.sleep(LOOK_S)
    return int(ended.read_text())


def _serve_one(asked: Mapping[str, object], request: Path, index: int, given: Mapping[str, str]) -> None:
    """Run this pod's processes of a request, and leave their exit code and output; ends them if the request does."""
    nodes, gpus, program, meeting = (asked[key] for key in ("nodes", "gpus", "program", "meeting"))
    if index >= nodes:  # type: ignore[operator]
        return
    words = torchrun_words(nodes, gpus, index, meeting, program)  # type: ignore[arg-type]
    own = {name: value for name, value in given.items() if name in asked["names"]}  # type: ignore[operator]
    base = request.with_name(request.name.removesuffix(REQUEST))
    with base.with_name(f"{base.name}.{index}{LOG}").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=str(asked["folder"]), env=own | dict(asked["environment"]),  # type: ignore[call-overload]
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        code = _watch(process, request)
    _write(base.with_name(f"{base.name}.{index}{CODE}"), str(code))


def _watch(process: subprocess.Popen[bytes], request: Path) -> int:
    """Wait for processes; kill them if the request is withdrawn, or its file shows no life. Returns the exit code."""
    seen, since = 0.0, time.monotonic()
    while (code := process.poll()) is None:
        try:
            touched = request.stat().st_mtime
        except FileNotFoundError:
            touched = -1.0
        if touched != seen:
            seen, since = touched, time.monotonic()
        if touched < 0 or time.monotonic() - since > SILENT_S:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait() or 1
        time.sleep(LOOK_S)
    return code


def main(arguments: Sequence[str]) -> int:
    """Run the command line in one of the pods; returns the exit code of the command."""
    missing = [name for name in (INDEX, PODS, FIRST, JOB) if name not in os.environ]
    if missing:
        print(f"profzoo: {', '.join(missing)} not set: profiles/kubernetes/nodes.yaml sets them", file=sys.stderr)
        return 2
    if index := int(os.environ[INDEX]):
        return serve(index, os.environ)
    code = 1
    try:
        code = subprocess.run(arguments, check=False).returncode
    finally:
        _write(job_folder(os.environ) / ENDED, str(code))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
