"""What a profiled process may see, and the search of what a job left for what it may not."""

import gzip
import json
import os
import socket
from pathlib import Path

import pytest
import yaml

from profzoo.collect import environment, secret_leaks
from profzoo.errors import CollectError
from tests.unit.collected import collected

TOKEN = "hx92kQ7fLw03mZpT5vBc"
HELD = "the value of {}, which was withheld from the job: unset {} where snakemake is called or, if it is no secret"


def test_the_list_is_exact_and_each_group_is_described() -> None:
    groups = yaml.safe_load(Path(environment.__file__).with_name("environment.yaml").read_text())
    assert all(
        set(group) - {"apart"} == {"documented", "names"} and "://" in group["documented"] for group in groups.values()
    )
    listed = [name for group in groups.values() for name in group["names"].split()]
    assert len(listed) == len(set(listed)) and environment.allowed_names(2) == set(listed)
    of_nodes = {name for group in ("slurm", "kubernetes") for name in groups[group]["names"].split()}
    assert environment.allowed_names(2) - environment.allowed_names() == of_nodes
    assert not any(secret_leaks.NAMED.search(name) for name in listed)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA_API_KEY", "TORCH_HUB_TOKEN", "PYTHON_KEYRING_PW", "LC_SECRET", "SLURM_JWT", "PYTHONDONTWRITEBYTECODE",
     "CUDA_X", "NCCL_", "OMP_SECRET", "path", "PATHOLOGY", "TORCHINDUCTOR_REDIS_URL", "LD_PRELOAD"],
)  # fmt: skip
@pytest.mark.parametrize("nodes", [1, 2])
def test_nothing_passes_by_how_its_name_begins(name: str, nodes: int) -> None:
    assert environment.select_environment({name: "x", "PATH": "p"}, [], nodes) == {"PATH": "p"}
    assert environment.select_environment({name: "x"}, [name], nodes) == {name: "x"}


@pytest.mark.parametrize(
    ("name", "nodes"),
    [("CUDA_VISIBLE_DEVICES", 1), ("NCCL_DEBUG", 1), ("LC_ALL", 1), ("PYTHONPATH", 1), ("SLURM_JOB_ID", 2),
     ("SLURM_CONF", 2), ("NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT", 1)],
)  # fmt: skip
def test_what_is_needed_passes(name: str, nodes: int) -> None:
    assert environment.select_environment({name: "x"}, [], nodes) == {name: "x"}
    assert (name in environment.select_environment({name: "x"}, [], 1)) == (nodes == 1)


@pytest.mark.parametrize(
    ("name", "value", "counts"),
    [
        ("NVIDIA_API_KEY", "nvapi-12", True),
        ("LC_SECRET", "hunter2hunter2", True),
        ("PGPASSWORD", "swordfish", True),
        ("AWS_ACCESS_KEY_ID", "AKIAABCDEFGH", True),
        ("HTTPS_PROXY", f"http://me:{TOKEN}@proxy:3128", True),
        ("ANYTHING", TOKEN, True),
        ("NVIDIA_API_KEY", "short", False),
        ("ANYTHING", "a plain sentence of some words", False),
        ("ANYTHING", "aaaaaaaaaaaaaaaaaaaaaaaa1", False),
        ("GITHUB_SHA", "d8f5c3b0a1e94f7788d2c6b5a4039281f0e1d2c3", False),
        ("INVOCATION_ID", "d8f5c3b0a1e94f7788d2c6b5a4039281", False),
        ("SSH_AUTH_SOCK", "/tmp/not-there.sock", False),
        ("GPG_KEY", "A035C8C19219BA821ECEA86B64E628F8D684696D", False),
        ("HTTPS_PROXY", "http://proxy.example.com:3128", False),
        ("MY_TOKEN", "in-a-kept-one", False),
        ("MY_TOKEN", str(Path.cwd()), False),
        ("PATH", TOKEN, False),
    ],
)  # fmt: skip
def test_what_counts_as_a_secret(name: str, value: str, counts: bool) -> None:
    given = {"PATH": "/bin", "NCCL_DEBUG_FILE": "/x/in-a-kept-one/y", name: value}
    assert (name in secret_leaks.withheld_secrets(given, environment.select_environment(given, []))) == counts


def test_names_of_host_and_user_do_not_count() -> None:
    given = {"DB_PASSWORD": "operator-7", "USER": "operator-7", "MY_KEY": socket.gethostname().ljust(8)}
    assert secret_leaks.withheld_secrets(given, environment.select_environment(given, [])) == {}


@pytest.mark.parametrize("where", ["out", "s.json", "log", "out.gz", "folder"])
def test_a_report_that_holds_one_fails_its_job_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    facts = json.dumps({"torch": "2", "device_type": "cpu", "said": TOKEN if where == "s.json" else ""})
    (tmp_path / "stored").write_text(TOKEN)
    program = {
        "out": f"cat {tmp_path}/stored > {tmp_path}/out",
        "s.json": "true",
        "log": f"cat {tmp_path}/stored",
        "out.gz": f"gzip -c {tmp_path}/stored > {tmp_path}/out.gz",
        "folder": f"mkdir -p {tmp_path}/folder/a; cp {tmp_path}/stored {tmp_path}/folder/a/b",
    }[where]
    (tmp_path / "facts").write_text(facts)
    code = f"echo x > {tmp_path}/out; {program}; cat {tmp_path}/facts > {tmp_path}/s.json"
    made = {} if where in ("out", "s.json", "log") else {"report": tmp_path / where}
    assert collected(tmp_path, "sh", "-c", code, made=made) == 1
    printed, log = capsys.readouterr().err, (tmp_path / "log").read_text()
    assert printed == f"profzoo: {where} holds {HELD.format('MY_TOKEN', 'MY_TOKEN')}, name it under `environment`\n"
    assert log.endswith(printed) and TOKEN not in log
    assert not any((tmp_path / name).exists() for name in ("out", "s.json", "out.gz", "folder"))
    assert collected(tmp_path, "sh", "-c", code, made=made, environment=["MY_TOKEN"]) == 0


def test_a_value_is_found_wherever_it_lies_and_however_it_is_written(tmp_path: Path) -> None:
    value = 'line "one"\nand é two'
    wanted = secret_leaks.withheld_secrets({"A_SECRET": value}, {})
    for at in (0, 1, secret_leaks.CHUNK - 5, secret_leaks.CHUNK, 3 * secret_leaks.CHUNK - 1):
        for text in (value.encode(), json.dumps({"a": value}).encode()):
            (tmp_path / "plain").write_bytes(b"\xff" * at + text + b"\0" * 9)
            (tmp_path / "packed").write_bytes(gzip.compress((tmp_path / "plain").read_bytes(), 1))
            assert [secret_leaks.find_secret_in_file(tmp_path / name, wanted) for name in ("plain", "packed")] == [
                "A_SECRET"
            ] * 2
    (tmp_path / "plain").write_bytes(value.encode()[:-1])
    assert secret_leaks.find_secret_in_file(tmp_path / "plain", wanted) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(5000))
    (tmp_path / "trace.json.gz").write_bytes(whole[:-700])
    with pytest.raises(CollectError, match=r"trace\.json\.gz is damaged: "):
        secret_leaks.find_secret_in_file(tmp_path / "trace.json.gz", {"A": (b"12345678",)})


@pytest.mark.parametrize("begins", [-10, -1, 0])
def test_a_value_is_found_where_one_read_ends_and_the_next_begins(tmp_path: Path, begins: int) -> None:
    value = os.urandom(20).hex().encode()
    (tmp_path / "large").write_bytes(os.urandom(secret_leaks.CHUNK + begins) + value + os.urandom(secret_leaks.CHUNK))
    other = {"OTHER": (os.urandom(20).hex().encode(),)}
    assert secret_leaks.find_secret_in_file(tmp_path / "large", other | {"MINE": (value,)}) == "MINE"
    assert secret_leaks.find_secret_in_file(tmp_path / "large", other) is None
