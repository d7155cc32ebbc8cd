"""The wrapper of collecting commands: environment, sidecar, failures in plain words; doctor beside it."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from profzoo import doctor
from profzoo.collect import environment, failure_causes, job_environment
from profzoo.errors import CollectError
from profzoo.machine import inherited_paths, scratch_folder
from tests.unit.collected import collected


def call(folder: Path, code: str, tool: str = "time", command: str = sys.executable) -> int:
    """Collect with a small Python program in the place of the model."""
    return collected(folder, command, "-c", code, tool=tool, environment=["KEPT"])


def leave(folder: Path, text: str = "x") -> str:
    """A program that leaves its output and facts."""
    facts = '{"torch": "2", "device_type": "cpu"}'
    return f"open({str(folder / 'out')!r}, 'w').write({text!r}); open({str(folder / 's.json')!r}, 'w').write('''{facts}''')"


def test_profiled_processes_see_what_they_need_and_no_more() -> None:
    given = {
        "PATH": "p",
        "SECRET_TOKEN": "s",
        "CUDA_VISIBLE_DEVICES": "0",
        "KEPT": "k",
        "AWS_KEY": "a",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert environment.select_environment(given, ["KEPT"]) == {"PATH": "p", "CUDA_VISIBLE_DEVICES": "0", "KEPT": "k"}


def test_ncu_leaves_home_alone(monkeypatch) -> None:
    monkeypatch.setenv(inherited_paths.NO_DEPLOYMENT, "")
    monkeypatch.delenv(inherited_paths.NO_DEPLOYMENT)
    inherited_paths.leave_home_alone()
    assert environment.select_environment(os.environ, [])[inherited_paths.NO_DEPLOYMENT] == "1"


def test_temporary_files_lie_in_the_nodes_folder_under_a_name_of_the_jobs_own(tmp_path: Path, monkeypatch) -> None:
    # Of a path that is short enough for the sockets of a job's workers.
    node = Path(tempfile.mkdtemp())
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(node))
    # A process of the same id on another host must not get the same name.
    monkeypatch.setattr(os, "getpid", lambda: 4242)
    seen = []
    for _ in range(2):
        code = f"import os, tempfile; said = os.environ['TMPDIR'] + ' ' + tempfile.gettempdir(); {leave(tmp_path)}; "
        assert call(tmp_path, code + f"open({str(tmp_path / 'out')!r}, 'w').write(said)") == 0
        own, taken = (tmp_path / "out").read_text().split()
        assert own == taken and Path(own).parent == node
        seen.append(own)
    assert len(set(seen)) == 2 and not list(node.iterdir())
    node.rmdir()


def test_what_is_compiled_outlasts_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp())
    monkeypatch.delenv(scratch_folder.COMPILED, raising=False)

    def seen() -> Path:
        code = f"import os; {leave(tmp_path)}; open({str(tmp_path / 'out')!r}, 'w').write(os.environ.get('{scratch_folder.COMPILED}', '-'))"
        cell = {"device": "cpu", "compile": "default"}
        assert collected(tmp_path, sys.executable, "-c", code, cell=cell) == 0
        return Path((tmp_path / "out").read_text())

    first = seen()
    assert first.is_dir() and first.stat().st_mode & 0o777 == 0o700 and seen() == first
    # What others could write to is not run.
    first.chmod(0o777)
    assert seen() == Path("-")
    monkeypatch.setenv(scratch_folder.COMPILED, str(tmp_path / "mine"))
    assert seen() == tmp_path / "mine"


def test_a_good_run_leaves_a_sidecar(tmp_path: Path) -> None:
    assert call(tmp_path, leave(tmp_path)) == 0
    sidecar = json.loads((tmp_path / "s.json").read_text())
    assert sidecar["command"][0] == sys.executable and sidecar["wall_s"] > 0 and sidecar["tool_version"] == "torch 2"
    assert {"host", "started", "warnings", "cell", "device_type"} <= set(sidecar)


def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(CollectError, match="gpus = 2, and 1 visible here"):
        job_environment.hold_gpus(2, ["GPU-a"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(7)", "exit code 7"),
        ("import sys; print('profzoo: the loss is nan', file=sys.stderr); sys.exit(3)", "the loss is nan"),
        (
            "print('==ERROR== ERR_NVGPUCTRPERM'); raise SystemExit(1)",
            "no permission to read the GPU's performance counters",
        ),
        ("pass", "left no out"),
    ],
)
def test_a_bad_run_is_explained_and_leaves_nothing(tmp_path: Path, capsys, code: str, words: str) -> None:
    assert call(tmp_path, code) == 1
    printed = capsys.readouterr().err
    assert printed.count("profzoo: ") == 1 and words in printed
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_an_empty_file_is_nothing(tmp_path: Path, capsys) -> None:
    assert call(tmp_path, leave(tmp_path, "")) == 1
    assert "left no out" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_a_missing_tool_is_named(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call(tmp_path, "pass", tool, tool) == 1
    assert f"{tool} is not on PATH: install NVIDIA Nsight" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "CAP_SYS_ADMIN"),
        ("==ERROR== Driver resource was unavailable.", "dcgmi profile --pause"),
        ("==ERROR== Failed to find metric foo__bar.sum", "ncu --query-metrics"),
        ("==ERROR== Unsupported API during capture (cuKernelSetAttribute)", "app-range"),
        ("OSError: [Errno 28] No space left on device", "no space"),
        ("Importer error status: An unknown error occurred.", "importer"),
        ("==WARNING== No kernels were profiled.", "ncu.kernel_name"),
    ],
)
def test_known_causes(line: str, words: str) -> None:
    assert words in (failure_causes.find_cause(f"before\n{line}\nafter") or "")


def test_the_programs_own_reason_goes_first() -> None:
    assert (
        failure_causes.find_cause("profzoo: the loss is nan\n==WARNING== No kernels were profiled.")
        == "the loss is nan"
    )
    assert failure_causes.find_cause("nothing odd") is None


def test_warnings_are_kept_once() -> None:
    assert failure_causes.find_warnings("==WARNING== a\n==PROF== b\n==WARNING== a\nWARNING: c") == ["a", "c"]


def test_doctor_says_what_to_do_about_each_lack(capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.main([]) == 0
    printed = capsys.readouterr().out
    for name in ("GPU", "driver", "torch CUDA", "ncu", "counters", "nsys", "nsys importer"):
        assert f"{name:<14}" in printed
    assert printed.count("->") >= 6 and "This machine can profile with: torch" in printed
