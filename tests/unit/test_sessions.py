"""Sessions of nsys: what its list says, and what is said where there is no nsys or no such session."""

from pathlib import Path

import pytest

from profzoo.cli import session_run
from profzoo.tools.nsys import sessions

# As nsys 2023.4 and 2025.3 print it.
LISTED = """\
              ID         TIME                       STATE LAUNCH NAME
        21030864        22:50                        Idle      0 profile-30857
        21230059        00:05                    Launched      1 server1
        21230060     01:00:05                  Collection      1 my server 2
"""


def given(monkeypatch: pytest.MonkeyPatch, folder: Path, printed: str) -> None:
    """Put a program called nsys on PATH that prints a list and refuses all else."""
    (folder / "list").write_text(printed)
    program = folder / "nsys"
    program.write_text(f'#!/bin/sh\n[ "$1" = sessions ] || {{ echo "refused: $*" >&2; exit 1; }}\ncat {folder}/list\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_the_list_is_read() -> None:
    assert sessions.parse_sessions(LISTED) == [
        sessions.Session("profile-30857", "Idle", 0),
        sessions.Session("server1", "Launched", 1),
        sessions.Session("my server 2", "Collection", 1),
    ]
    assert sessions.parse_sessions("") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sevrer1"], "nsys has no session 'sevrer1': did you mean 'server1'?"),
        (["zzz"], "nsys has no session 'zzz': valid are: my server 2, server1"),
        (["profile-30857"], "session 'profile-30857' runs no program any more; the sessions with a program are: server1, "
         "my server 2"),
        (["my server 2"], "session 'my server 2' is being recorded already: stop that first (--stop)"),
        (["server1", "--stop"], "session 'server1' is not being recorded: begin with --start"),
        (["server1"], "`nsys start` failed: refused: start --session=server1 --sample=none --cpuctxsw=none "
         "--force-overwrite=true --output={folder}/server1.nsys-rep"),
        (["server1", "--output", "a.txt"], "`nsys start` failed: refused: start --session=server1 --sample=none "
         "--cpuctxsw=none --force-overwrite=true --output={folder}/a.txt.nsys-rep"),
        (["server1", "--output", "no/such.nsys-rep"], "the folder no of the report does not exist"),
        (["server1", "--name", "../x"], "--name '../x' is not a valid name of a model ("),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_said_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, tmp_path, LISTED)
    monkeypatch.chdir(tmp_path)
    assert session_run.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"profzoo: {said.format(folder=tmp_path)}")


def test_the_report_of_a_program_that_ended_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """nsys completes the report of a program that ends, and forgets its session."""
    given(monkeypatch, tmp_path, LISTED)
    monkeypatch.chdir(tmp_path)
    words = ["server7", "--stop", "--name", "run7"]
    assert session_run.main(words) == 2
    assert "complete" not in capsys.readouterr().err
    (tmp_path / "run7.nsys-rep").touch()
    assert session_run.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("; if its program ended while it was recorded, run7.nsys-rep is complete")


@pytest.mark.parametrize("words", [["--stop"], ["--seconds", "3"], ["--name", "run7", "--import"]])
def test_an_option_without_a_session_does_not_pass_for_a_list(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        session_run.main(words)
    assert ended.value.code == 2 and "name the session, as in" in capsys.readouterr().err


def test_a_report_is_overwritten_by_force_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, tmp_path, LISTED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.nsys-rep").write_text("kept")
    assert session_run.main(["server1", "--output", "a"]) == 2
    assert capsys.readouterr().err.startswith("profzoo: a.nsys-rep exists already: ")
    assert (tmp_path / "a.nsys-rep").read_text() == "kept"


def test_a_long_window_ends_with_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "nsys"
    program.write_text(
        f'#!/bin/sh\ncd {tmp_path}; echo "$1" >> asked\n[ "$1" = start ] && touch a.nsys-rep\n'
        '[ "$(grep -c sessions asked)" -gt 2 ] || echo " 1 00:01 Launched 1 server"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session_run, "LOOK_S", 0.01)
    assert session_run.main(["server", "--seconds", "3600", "--name", "a"]) == 0
    assert "the program of session server ended within the window, so it is shorter" in capsys.readouterr().out


def test_without_a_session_it_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, tmp_path, LISTED.splitlines(keepends=True)[0])
    assert session_run.main([]) == 0
    assert "no session runs a program: start the program with `nsys launch" in capsys.readouterr().out
    assert session_run.main(["server1"]) == 2
    assert "nsys launch --session-new=NAME" in capsys.readouterr().err


def test_without_nsys_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session_run.main(["server1"]) == 2
    assert "nsys is not on PATH: install NVIDIA Nsight Systems" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        ("--gpu-metrics-devices=", ["--gpu-metrics-devices=cuda-visible"]),
        ("--gpu-metrics-device=", ["--gpu-metrics-device=all"]),
        ("", None),
    ],
)
def test_metrics_of_the_gpu_are_asked_for_as_this_nsys_spells_it(
    offered: str, words: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nsys").write_text(f'#!/bin/sh\n[ "$*" = "start --help" ] && echo "{offered}"\n')
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    plain = ["--sample=none", "--cpuctxsw=system-wide"]
    assert sessions.choose_options("none", "system-wide", gpu_metrics=False) == plain
    if words is None:
        with pytest.raises(sessions.ConfigError, match=r"^this nsys offers no --gpu-metrics-device: "):
            sessions.choose_options("none", "system-wide", gpu_metrics=True)
    else:
        assert sessions.choose_options("none", "system-wide", gpu_metrics=True) == [*plain, *words]


@pytest.mark.parametrize("seconds", ["0", "-3", "nan"])
def test_a_window_takes_time(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        session_run.main(["server1", "--seconds", seconds])
    assert "give a time above 0" in capsys.readouterr().err
