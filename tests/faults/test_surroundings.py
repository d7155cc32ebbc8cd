"""What may be wrong around a job: disks, folders, environments, other users' files. Each ends well, or in one line."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profzoo.machine import scratch_folder
from tests import slow
from tests.faults import family
from tests.faults.harm import GOOD, OLD, Harm, good, some

NOBODY = 65534
# Parts of paths that shells, tools or Python may read otherwise.
ODD = ["a b", "a#b", "a%hb", 'a"b', "a\nb", "a?b", "a%41", "a'b", "a&b", "a;b", "a$HOME", "-a", "ä\u0301", "a\\b", "*"]


class Disk:
    """A file system of a MB in memory, at a folder; as root alone can make one."""

    def __init__(self, folder: Path, options: str = "size=1m") -> None:
        folder.mkdir(exist_ok=True)
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip("no file system can be mounted here, which takes root")
        self.folder = folder

    def fill(self) -> None:
        with (self.folder / "filling").open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(4096))
                except OSError:
                    return

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk() -> Iterator[Callable[..., Disk]]:
    made: list[Disk] = []

    def mount(folder: Path, options: str = "size=1m") -> Disk:
        made.append(Disk(folder, options))
        return made[-1]

    yield mount
    for one in reversed(made):
        one.close()


def test_results_on_a_disk_that_fills_up_while_the_program_writes(harm: Harm, disk: Callable[..., Disk]) -> None:
    disk(harm.results)
    for name, text in OLD.items():
        (harm.results / name).write_text(text)
    code = "yes > {0}/out || exit 1"
    harm.fails(
        ["sh", "-c", code.format(harm.results)], r"no space is left on the disk: free some, or give other .*pathvars"
    )
    harm.goes_on()


def test_results_on_a_full_disk(harm: Harm, disk: Callable[..., Disk]) -> None:
    """Not even the log has room."""
    full = disk(harm.results)
    for name, text in OLD.items():
        (harm.results / name).write_text(text)
    full.fill()
    code, said = harm.run(good(harm))
    assert code == 1 and len(said) == 1 and "no space is left on the disk" in said[0].lower(), said
    (harm.results / "filling").unlink()
    harm.over(OLD)
    harm.goes_on()


@pytest.mark.slow
def test_results_that_may_not_be_written(harm: Harm, disk: Callable[..., Disk]) -> None:
    disk(harm.results, "ro")
    code, said = harm.run(good(harm))
    assert code == 1 and len(said) == 1 and "Read-only file system; give the right to write there" in said[0], said
    assert not list(harm.results.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("kind", some(["full", "not there", "long", "read-only", "a file", "odd"], 3))
def test_temporary_files_where_they_cannot_be(harm: Harm, disk: Callable[..., Disk], kind: str) -> None:
    """A full disk is named; in the place of others is /tmp, or the job goes on there."""
    place = harm.temporary / {"long": "x" * 200, "odd": "a #%h\"b'"}.get(kind, "place")
    harm.variables = {"TMPDIR": str(place)}
    if kind in ("full", "read-only"):
        one = disk(place, "ro" if kind == "read-only" else "size=1m,nr_inodes=3")
        if kind == "full":
            one.fill()
    elif kind == "a file":
        place.touch()
    elif kind != "not there":
        place.mkdir()
    code, said = harm.run(good(harm))
    if kind == "full":
        # Python itself looks for another place, where this one cannot hold a file.
        assert code == 0 or "no space is left on the disk" in said[0]
    else:
        assert (code, said) == (0, [])
    harm.variables = {}
    harm.over(None)
    harm.goes_on()


@pytest.mark.slow
@pytest.mark.parametrize("name", some(ODD, 5))
def test_results_in_a_folder_of_any_name(harm: Harm, name: str) -> None:
    harm.results = harm.results / name
    harm.results.mkdir()
    places = [str(harm.results / "out"), str(harm.results / "s.json")]
    assert harm.run(["sh", "-c", 'echo new > "$0"; echo "{\\"torch\\": 2}" > "$1"', *places]) == (0, [])
    harm.over(None)
    assert (harm.results / "out").read_text() == "new\n"


FOREIGN: dict[str, Callable[[Harm], object]] = {
    "a folder in the place of a result": lambda harm: (harm.results / "out").mkdir(),
    "a file in the place of the job's folder": lambda harm: (harm.results / ".s.making").touch(),
    "a folder in the place of the claim": lambda harm: (harm.results / ".s.making" / "claim.json").mkdir(parents=True),
    "a folder in the place of the log": lambda harm: (harm.results / "log").mkdir(),
    "a pipe in the place of the log": lambda harm: os.mkfifo(harm.results / "log"),
    "a link in the place of the job's folder": lambda harm: (harm.results / ".s.making").symlink_to(harm.folder),
    "a pipe in the place of the claim": lambda harm: os.mkfifo(
        (harm.results / ".s.making").mkdir() or harm.results / ".s.making" / "claim.json"
    ),
    "a file in the place of the locks": lambda harm: (harm.folder / "locks").touch(),
}


@pytest.mark.parametrize("name", slow.first(FOREIGN))
def test_files_of_others_where_a_job_needs_the_place(harm: Harm, name: str) -> None:
    """They stay, and are named."""
    for path in harm.results.iterdir():
        path.unlink()
    FOREIGN[name](harm)
    (harm.results / "mine.txt").write_text("precious")
    if name == "a folder in the place of a result":
        (harm.results / "out" / "mine.txt").write_text("precious")
    code, said = harm.run(["sh", "-c", GOOD.format(harm.results)])
    assert (harm.results / "mine.txt").read_text() == "precious"
    if name == "a file in the place of the locks":
        # No GPU is to be locked here.
        assert code == 0
        return
    assert code == 1 and len(said) == 1 and said[0].startswith("profzoo: "), said
    assert not harm.processes() and not list(harm.temporary.glob("*profzoo*"))
    if name == "a folder in the place of a result":
        assert (harm.results / "out" / "mine.txt").read_text() == "precious" and not (harm.results / "s.json").exists()


@pytest.mark.slow
def test_results_that_are_links(harm: Harm) -> None:
    """A result takes the place of a link, and what that leads to stays."""
    mine = harm.folder / "mine.txt"
    mine.write_text("precious")
    (harm.results / "out").unlink()
    for name in ("out", "log"):
        (harm.results / name).symlink_to(mine)
    harm.goes_on()
    assert mine.read_text() == "precious" and not (harm.results / "out").is_symlink()
    # Nor what says why a job was not begun.
    (harm.results / "log").unlink()
    (harm.results / "log").symlink_to(mine)
    (harm.results / ".s.making").touch()
    assert harm.run(good(harm))[0] == 1 and mine.read_text() == "precious"


@pytest.mark.slow
def test_a_results_folder_that_is_removed_meanwhile(harm: Harm) -> None:
    code, said = harm.run(["sh", "-c", f"rm -r {harm.results}"])
    assert code == 1 and len(said) == 1 and "is left as it is" in said[0], said
    assert not harm.results.exists() and not harm.processes() and not list(harm.temporary.glob("*profzoo*"))
    harm.results.mkdir()
    harm.goes_on()


@pytest.mark.slow
def test_a_working_folder_that_is_gone(harm: Harm) -> None:
    """Removed, as with a checkout that somebody has made anew."""
    place = harm.folder / "place"
    place.mkdir()
    job = harm.begun(good(harm), before=lambda: (os.chdir(place), place.rmdir())[0])
    said, _ = job.communicate(timeout=60)
    assert job.returncode in (0, 1) and "Traceback" not in said, said
    harm.goes_on()


ENVIRONMENTS = {
    "nothing": None,
    "no home": {"HOME": ""},
    "a home that is not there": {"HOME": "/none"},
    "a value of 100 KB": {"HUGE": "x" * 100_000},
    "values that are not text": {"ODD": "\udcff\udcfe", "LINES": "a\nb=c\nPATH=/none"},
    "a locale that is not there": {"LC_ALL": "xx_YY.UTF-8"},
    "no text but ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "ends of an owner": {"PROFZOO_OWNER": "1:1:1", "PROFZOO_JOB": "/none", "PROFZOO_UMASK": "x"},
    "limits that are none": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some(ENVIRONMENTS, 5))
def test_environments(harm: Harm, name: str) -> None:
    given = ENVIRONMENTS[name]
    if given is None:
        harm.environment = lambda: {"PYTHONPATH": str(family.PROJECT), "PATH": os.environ["PATH"]}  # type: ignore[method-assign]
    else:
        harm.variables = given
    assert harm.run(good(harm)) == (0, [])
    harm.over(None)


@pytest.mark.slow
def test_a_program_that_looks_into_the_environment_of_its_job(harm: Harm) -> None:
    """As root, and any program of the same user, may: what it leaves is searched."""
    harm.variables = {"MY_TOKEN": "hx92kQ7fLw03mZpT5vBc"}
    code = "tr '\\0' '\\n' < /proc/$(awk '/^PPid/ {{print $2}}' /proc/$PPID/status)/environ > {0}/out; echo '{{}}' > {0}/s.json"
    said = harm.fails(
        ["sh", "-c", code.format(harm.results)], r"out holds the value of MY_TOKEN, a secret of the environment"
    )
    assert "hx92" not in said and "hx92" not in (harm.results / "log").read_text()


@pytest.mark.slow
def test_what_others_put_into_the_folder_of_temporary_files(harm: Harm) -> None:
    """Links and folders named like those of jobs are not followed, and not removed where they are another user's."""
    mine = harm.folder / "mine"
    mine.mkdir()
    (mine / "precious.txt").write_text("precious")
    trap = harm.temporary / f"{scratch_folder.PREFIX}trap"
    trap.symlink_to(mine)
    (harm.temporary / f"{scratch_folder.PREFIX}file").touch()
    assert harm.run(good(harm)) == (0, [])
    assert (mine / "precious.txt").exists() and trap.is_symlink()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="takes root, to be somebody else")
def test_a_folder_of_another_user_that_looks_like_a_dead_jobs(harm: Harm) -> None:
    other = harm.temporary / f"{scratch_folder.PREFIX}other"
    other.mkdir()
    (other / "precious.txt").touch()
    os.chown(other, NOBODY, NOBODY)
    assert harm.run(good(harm)) == (0, [])
    assert (other / "precious.txt").exists()


@pytest.mark.parametrize("text", slow.first(["", "{", "[1]", '{"options": ["--set"', "\0\0", '{"options": "x"']))
def test_a_plan_that_is_damaged(harm: Harm, text: str) -> None:
    plan = harm.folder / "train.full.plan.json"
    plan.write_text(text)
    code = (
        "import sys; from pathlib import Path; from profzoo.collect import job_run; folder, plan = map(Path, sys.argv[1:])\n"
        "job = {'tool': 'time', 'cell': {'device': 'cpu'}, 'environment': []}\n"
        "sys.exit(job_run.run_job(job, {'sidecar': folder / 's.json'}, folder / 'log', plan=plan))"
    )
    words = [os.sys.executable, "-c", code, str(harm.results), str(plan)]  # type: ignore[attr-defined]
    ran = subprocess.run(words, cwd=family.PROJECT, env=harm.environment(), capture_output=True, text=True, check=False)
    assert (
        ran.returncode == 1
        and ran.stderr.count("\n") == 1
        and "is damaged" in ran.stderr
        and "`snakemake --force " in ran.stderr
    ), ran.stderr
    assert plan.read_text() == text
    harm.over(OLD)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["", "{", "\0", json.dumps({"run": "x", "link": "/"}), json.dumps({"host": 1, "link": 2})]
)
def test_a_claim_that_is_damaged(harm: Harm, text: str) -> None:
    home = harm.results / ".s.making"
    (home / "0123456789ab").mkdir(parents=True)
    (home / "claim.json").write_text(text)
    harm.goes_on()


@pytest.mark.slow
def test_two_jobs_that_share_a_folder_of_temporary_files(harm: Harm, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Harm(tmp_path_factory.mktemp("other"), Path(tempfile.mkdtemp(prefix="harm-")))
    shutil.rmtree(other.temporary)
    other.temporary = harm.temporary
    job = harm.begun(["sh", "-c", f"echo x > {harm.folder}/begun; sleep 1; {GOOD.format(harm.results)}"])
    family.until((harm.folder / "begun").exists, 30)
    assert other.run(good(other)) == (0, [])
    assert job.wait(30) == 0
    harm.over(None)
