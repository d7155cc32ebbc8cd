"""What a profiled process may see, and the search of what a job left for what it may not."""

import fnmatch
import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from profzoo.collect import environment, secret_leaks
from profzoo.errors import CollectError
from profzoo.records.read_files import ReadFiles
from tests import slow
from tests.unit.collected import collected

TOKEN = "hx92kQ7fLw03mZpT5vBc"
HELD = "the value of {}, a secret of the environment: keep the program from writing it, unset {} where snakemake is called or"


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


def test_each_pattern_of_what_reaches_own_programs_has_a_reason_and_says_one_thing() -> None:
    lists = yaml.safe_load(Path(environment.__file__).with_name("own_environment.yaml").read_text())
    assert {*lists} == {environment.WITHHELD, environment.COMPARED, environment.IGNORED}
    for group in (one for each in lists.values() for one in each):
        names = group["names"].split()
        assert {*group} == {"why", "names"} and len(names) == len({*names})
    # What is withheld is decided first; of the rest, what is compared is not ignored as well.
    known = {name for one in lists[environment.IGNORED] for name in one["names"].split() if "*" not in name}
    assert not [name for name in known for one in lists[environment.COMPARED] for pattern in one["names"].split()
                if fnmatch.fnmatchcase(name, pattern)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "reaches", "counts"),
    [("MODE", True, True), ("OMPI_MCA_plm", True, False), ("PMIX_MCA_gds", True, False), ("TERM", True, False),
     ("HF_HOME", True, False), ("HF_TOKEN", True, False), ("SSH_CONNECTION", True, False), ("XDG_CACHE_HOME", True, False),
     ("SLURM_NTASKS", False, False), ("PMIX_RANK", False, False), ("PYTHONDONTWRITEBYTECODE", False, False),
     ("LD_PRELOAD", False, False), ("PROFZOO_OWNER", False, False), ("USE_KV_CACHE", True, True)],
)  # fmt: skip
def test_what_reaches_own_programs_and_what_counts_where_they_read_it(name: str, reaches: bool, counts: bool) -> None:
    assert (name in environment.own_variables({name: "x"}, [])) == reaches
    assert environment.is_compared(name) == counts
    assert name in environment.select_environment({name: "x"}, [name])


# What mpirun of Open MPI 4.1.8 gives to a process, but for what its user sets.
OF_MPIRUN = """
OMPI_APP_CTX_NUM_PROCS OMPI_ARGV OMPI_COMMAND OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_FILE_LOCATION
OMPI_FIRST_RANKS OMPI_MCA_ess OMPI_MCA_ess_base_jobid OMPI_MCA_ess_base_vpid OMPI_MCA_initial_wdir OMPI_MCA_orte_app_num
OMPI_MCA_orte_bound_at_launch OMPI_MCA_orte_ess_node_rank OMPI_MCA_orte_ess_num_procs OMPI_MCA_orte_hnp_uri
OMPI_MCA_orte_jobfam_session_dir OMPI_MCA_orte_launch OMPI_MCA_orte_local_daemon_uri OMPI_MCA_orte_num_nodes
OMPI_MCA_orte_precondition_transports OMPI_MCA_orte_top_session_dir OMPI_NUM_APP_CTX OMPI_UNIVERSE_SIZE
PMIX_BFROP_BUFFER_TYPE PMIX_DSTORE_21_BASE_PATH PMIX_GDS_MODULE PMIX_HOSTNAME PMIX_ID PMIX_NAMESPACE PMIX_PTL_MODULE
PMIX_RANK PMIX_SECURITY_MODE PMIX_SERVER_TMPDIR PMIX_SERVER_URI2 PMIX_SYSTEM_TMPDIR PMIX_VERSION
"""
# Ends as Open MPI does: without a home, or where it is told to ask a launcher of which it knows a part.
RUNTIME = """
import ctypes
library = ctypes.CDLL(None)
library.getenv.restype = ctypes.c_char_p
set_by_user = [library.getenv(name) for name in (b"HOME", b"OMPI_MCA_plm", b"PMIX_MCA_gds", b"OPAL_PREFIX", b"HWLOC_COMPONENTS")]
launched = [library.getenv(name) for name in (b"OMPI_MCA_orte_local_daemon_uri", b"PMIX_NAMESPACE")]
library.exit(0 if all(set_by_user) and (all(launched) or not any(launched)) else 14)
"""


def test_a_program_gets_all_of_a_launchers_variables_or_none() -> None:
    """A part of them ends a program that asks the launcher; the variables of users reach it all the same."""
    users = dict.fromkeys(("OMPI_MCA_plm", "PMIX_MCA_gds", "OPAL_PREFIX", "HWLOC_COMPONENTS"), "x")
    given = {**dict.fromkeys(OF_MPIRUN.split(), "1"), **users, "HOME": "/"}
    seen = {**environment.select_environment(given, []), **environment.own_variables(given, [])}
    assert seen == {**users, "HOME": "/"}
    assert subprocess.run([sys.executable, "-c", RUNTIME], env=seen, check=False).returncode == 0


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


@pytest.mark.parametrize("where", slow.only(["out", "s.json", "log", "out.gz", "folder"], "s.json", "log", "folder"))
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
    said = f"{HELD.format('MY_TOKEN', 'MY_TOKEN')}, if it is not a secret, name it under `variables`"
    assert printed == f"profzoo: {where} holds {said}\n"
    assert log.endswith(printed) and TOKEN not in log
    assert not any((tmp_path / name).exists() for name in ("out", "s.json", "out.gz", "folder"))
    if where == "folder":
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


def test_paths_that_hold_a_secret_are_not_recorded() -> None:
    """Neither as a file that was read or written, nor as a name in a listed folder."""
    open_one, secret = "data/a.txt", f"data/{TOKEN}/b.txt"
    seen = ReadFiles({open_one: "sha256:1", secret: "sha256:2", "data": [TOKEN]}, (open_one, secret), (secret,))
    found = secret_leaks.without_secrets(seen, {"MY_TOKEN": TOKEN}, [])
    assert found == ReadFiles({open_one: "sha256:1"}, (open_one,), ())
    assert secret_leaks.without_secrets(seen, {}, []) == seen
