"""Pods of an indexed Job as nodes: two pods as processes of this machine train together, and what the manifest says."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from profzoo.collect import environment, multi_node, pod_nodes
from profzoo.errors import CollectError
from tests.unit.test_distributed import PROJECT

MANIFEST = PROJECT / "profiles" / "kubernetes" / "nodes.yaml"
# What each process leaves: who it is among all, and what it sees of two variables.
PROGRAM = """
import os, pathlib, sys
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "PYTHONPATH", "SECRET")
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(" ".join(os.environ.get(name, "-") for name in names))
sys.exit(int(sys.argv[2]) if os.environ["RANK"] == "1" else 0)
"""


def variables(index: int, pods: int = 2) -> dict[str, str]:
    """What a pod sees, by the manifest."""
    own = {pod_nodes.INDEX: str(index), pod_nodes.PODS: str(pods), pod_nodes.FIRST: "127.0.0.1", pod_nodes.JOB: "u-1"}
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, **own, "PYTHONPATH": str(PROJECT), "SECRET": f"s{index}"}


def pod(folder: Path, index: int, *words: str) -> subprocess.Popen[str]:
    """A pod of the Job in the folder that all of them share."""
    command = [sys.executable, "-m", "profzoo.collect.pod_nodes", *words]
    return subprocess.Popen(
        command, cwd=folder, env=variables(index), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
def test_processes_start_in_all_pods_and_end_with_the_command(code: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    inner = [sys.executable, str(tmp_path / "program.py"), str(tmp_path), str(code)]
    launcher = [sys.executable, "-m", "profzoo.collect.multi_node", "2", "1", *inner]
    second = pod(tmp_path, 1)
    first = pod(tmp_path, 0, *launcher)
    printed, _ = first.communicate(timeout=120)
    assert (first.returncode == 0) == (code == 0), printed
    # The others end with the code of the first pod's command.
    assert second.wait(timeout=60) == first.returncode
    if code == 0:
        found = [(tmp_path / str(rank)).read_text().split() for rank in (0, 1)]
        assert [one[:4] for one in found] == [[str(rank), "2", "127.0.0.1", str(PROJECT)] for rank in (0, 1)]
        # Other variables are each pod's own.
        assert [one[4] for one in found] == ["s0", "s1"]
    else:
        # What failed in another pod is told in the first one's log.
        assert ".1.log" in printed and "exitcode" in printed
    assert not list((tmp_path / pod_nodes.FOLDER / "u-1").glob(f"*{pod_nodes.REQUEST}"))


@pytest.mark.parametrize("code", [0, 3])
def test_a_request_is_served_by_the_other_pods(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in the place of torchrun, in two threads of this process; the second pod's code is the result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pod_nodes, "LOOK_S", 0.02)
    monkeypatch.setattr(
        pod_nodes, "torchrun_words", lambda nodes, gpus, index, meeting, program: [*program, str(index)]
    )
    said = f"echo $SECRET $0 > {tmp_path}/$0; exit $(($0 * {code}))"
    folder = pod_nodes.job_folder(variables(0))
    with ThreadPoolExecutor() as pods:
        second = pods.submit(pod_nodes.serve, 1, variables(1))
        assert pod_nodes.launch(2, 1, ["sh", "-c", said], variables(0)) == code
        pod_nodes._write(folder / pod_nodes.ENDED, "7")
        assert second.result(30) == 7
    assert (tmp_path / "1").read_text() == "s1 1\n" and not list(folder.glob(f"*{pod_nodes.REQUEST}"))


def test_a_request_that_is_still_written_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, rename = list[list[Path]](), Path.rename

    def look_and_rename(path: Path, target: Path) -> Path:
        found.append([*tmp_path.glob(f"*{pod_nodes.REQUEST}")])
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", look_and_rename)
    pod_nodes._write(tmp_path / f"a{pod_nodes.REQUEST}", "{}")
    assert found == [[]] and (tmp_path / f"a{pod_nodes.REQUEST}").read_text() == "{}"


def test_too_few_pods_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CollectError, match="nodes = 3, and the Job has 2 pods: raise completions"):
        pod_nodes.launch(3, 1, ["true"], variables(0))


def test_a_request_without_a_sign_of_life_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_nodes, "SILENT_S", 0.3)
    monkeypatch.setattr(pod_nodes, "LOOK_S", 0.05)
    (request := tmp_path / f"a{pod_nodes.REQUEST}").write_text("")
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    began = time.monotonic()
    assert pod_nodes._watch(process, request) != 0 and time.monotonic() - began < 30
    request.unlink()
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert pod_nodes._watch(process, request) != 0


def test_requests_are_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = pod_nodes.job_folder(variables(0))
    pod_nodes._write(folder / "x", json.dumps({}))
    assert (folder.stat().st_mode & 0o777, (folder / "x").stat().st_mode & 0o777) == (0o700, 0o600)


def test_pods_are_numbered_as_torchrun_numbers_nodes() -> None:
    words = pod_nodes.torchrun_words(2, 4, 1, ("profzoo-nodes-0.profzoo-nodes", 29_500), ["nsys", "profile"])
    assert {"--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-port=29500"} <= set(words)
    assert "--master-addr=profzoo-nodes-0.profzoo-nodes" in words and words[-3:] == ["--no-python", "nsys", "profile"]


def test_variables_of_pods_reach_cells_on_several_nodes_only() -> None:
    names = {pod_nodes.INDEX, pod_nodes.PODS, pod_nodes.FIRST, pod_nodes.JOB}
    assert names <= environment.allowed_names(2) and not names & environment.allowed_names(1)
    assert not names & environment.measurement_variables()


def manifest() -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service and the Job."""
    service, job = yaml.safe_load_all(MANIFEST.read_text())
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    return service, job


def test_the_manifest_names_what_its_parts_go_by() -> None:
    service, job = manifest()
    spec, pods = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert int(given[pod_nodes.PODS]) == spec["completions"] and pod_nodes.JOB in given
    # A headless Service gives a pod of the Job a name only if it selects it and is its subdomain.
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {
        "job-name": job["metadata"]["name"]
    }
    assert pods["subdomain"] == service["metadata"]["name"]
    assert given[pod_nodes.FIRST] == f"{job['metadata']['name']}-0.{pods['subdomain']}"
    assert container["command"][2:] == ["profzoo.collect.pod_nodes", "snakemake"]
    gpus = int(container["resources"]["limits"]["nvidia.com/gpu"]) * spec["completions"]
    assert f"gpu={gpus}" in container["args"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in pods["volumes"]}


def test_the_right_batch_system_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in variables(0, pods=1).items():
        monkeypatch.setenv(name, value)
    assert multi_node.main(["2", "1", "true"]) == 1
    assert "nodes = 2, and the Job has 1 pods" in capsys.readouterr().err
