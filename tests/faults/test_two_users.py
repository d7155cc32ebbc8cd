"""Two users on one machine: processes that really have other user ids, at each other's locks and temporary files."""

import itertools
import json
import os
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profzoo.collect import profile_ranks, transaction
from profzoo.errors import CollectError, ConfigError
from profzoo.machine import file_locks, gpu_slots, scratch_folder
from profzoo.machine.gpu_slots import LockTerms
from tests import slow

ALICE, BOB = 65533, 65534
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="takes root, to be somebody else")
PRECIOUS = "precious"


@contextmanager
def child(user: int, do: Callable[[], object]) -> Iterator[str]:
    """A process of that user, which does it, tells what came of it, and lives on while the body runs."""
    (said, says), (over, end) = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        os.close(end)
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o022)
            answer = json.dumps(do())
        except BaseException:
            answer = json.dumps(traceback.format_exc())
        os.write(says, answer.encode())
        os.close(says)
        os.read(over, 1)
        os._exit(0)
    os.close(says)
    os.close(over)
    try:
        with os.fdopen(said) as file:
            yield json.loads(file.read())
    finally:
        os.close(end)
        os.waitpid(process, 0)


def by(user: int, do: Callable[[], object]) -> str:
    """What came of it, by a process of that user which has ended."""
    with child(user, do) as answer:
        return answer


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in which every user may make files, and remove their own alone, such as /tmp."""
    with tempfile.TemporaryDirectory(prefix="users-", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def taken(results: Path) -> str:
    try:
        file_locks.lock_results(results, file_locks.inspect_folder(results))
    except ConfigError as error:
        return str(error)
    return "taken"


def held(results: Path) -> object:
    return file_locks.inspect_folder(results).holder


def test_another_users_run_on_the_same_results_is_named(place: Path) -> None:
    """Though its lock may not be written."""
    with child(ALICE, lambda: taken(place)) as answer:
        assert answer == "taken"
        assert "is in use by another run, process " in by(BOB, lambda: taken(place))
        assert by(BOB, lambda: held(place)).startswith("process ")


def test_a_lock_that_another_user_left_is_named(place: Path) -> None:
    """Of a run that was killed; nobody else may remove it."""
    path = place / file_locks.NAME
    with child(ALICE, lambda: taken(place)):
        pass
    assert path.lstat().st_uid == ALICE
    said = by(BOB, lambda: taken(place))
    assert f"{path} belongs to the user {ALICE}: have it removed, once no run of theirs is at work there" in said
    assert "\n" not in said and path.lstat().st_uid == ALICE
    # Its user's next run goes on.
    assert by(ALICE, lambda: taken(place)) == "taken"


@pytest.mark.parametrize(
    ("link", "victim"), slow.only(itertools.product(["symbolic", "hard"], [0, BOB]), ("hard", 0), ("symbolic", BOB))
)
def test_a_link_of_another_user_is_no_way_into_a_file(place: Path, link: str, victim: int) -> None:
    (mine := place / "mine.txt").write_text(PRECIOUS)
    mine.chmod(0o666)
    os.chown(mine, victim, victim)
    job = {"sidecar": place / "s.json"}
    home = transaction.private_home(job["sidecar"])

    def trap() -> None:
        home.mkdir()
        home.chmod(0o1777)
        for path in (place / file_locks.NAME, home / transaction.CLAIM, place / "GPU-a.lock"):
            path.symlink_to(mine) if link == "symbolic" else os.link(mine, path)

    def begun() -> str:
        try:
            with transaction.begin(job):
                return "begun"
        except OSError as error:
            return str(error)

    def locked() -> str:
        try:
            with gpu_slots.hold_gpus(1, ["GPU-a"], print, LockTerms(place)):
                return "taken"
        except CollectError as error:
            return str(error)

    assert by(ALICE, trap) is None
    what = "is a symbolic link" if link == "symbolic" else "is a file with another name, too"
    for do in (lambda: taken(place), begun, locked):
        said = by(victim, do)
        assert what in said and "remove it" in said and "\n" not in said
    assert mine.read_text() == PRECIOUS and mine.stat().st_uid == victim


def test_a_gpu_is_shared_by_two_users(place: Path) -> None:
    """Whoever made the folder and the file."""
    terms = LockTerms(place / "locks", wait_s=0.0, what="time of lstm")

    def hold() -> str:
        with gpu_slots.open_slot("GPU-a", terms) as file:
            # Kept open until the process ends.
            kept = os.dup(file.descriptor)
            file_locks.lock_descriptor(kept, wait=False)
            file_locks.replace_text(kept, gpu_slots._describe_holder(terms.what))
        return "held"

    def take() -> str:
        try:
            with gpu_slots.hold_gpus(1, ["GPU-a"], lambda line: None, terms) as mine:
                return mine.words[0]
        except CollectError as error:
            return str(error)

    with child(ALICE, hold) as answer:
        assert answer == "held"
        for user in (BOB, 0):
            assert f" of {ALICE}, time of lstm" in by(user, take)
    assert by(BOB, take) == "GPU-a" and by(0, take) == "GPU-a"
    folder = (place / "locks").lstat()
    assert folder.st_uid == ALICE and stat.S_IMODE(folder.st_mode) == 0o1777


def test_a_folder_of_locks_that_is_another_users_link_is_refused(place: Path) -> None:
    (mine := place / "mine").mkdir()
    os.chown(mine, BOB, BOB)

    def take() -> str:
        try:
            with gpu_slots.hold_gpus(1, ["GPU-a"], print, LockTerms(place / "locks")):
                return "taken"
        except CollectError as error:
            return str(error)

    assert by(ALICE, lambda: (place / "locks").symlink_to(mine)) is None
    assert f"locks is a symbolic link of the user {ALICE}: remove it, or set locks.folder" in by(BOB, take)
    assert not list(mine.iterdir()) and stat.S_IMODE(mine.stat().st_mode) == 0o755
    # One's own, or an administrator's, is.
    (place / "locks").unlink()
    (place / "locks").symlink_to(mine)
    assert by(BOB, take) == "taken"


def scratched(place: Path) -> list[str]:
    """The folders of a job, of a rank and of what is compiled, which stay."""
    tempfile.tempdir = str(place)
    folder, _ = scratch_folder.make_scratch()
    compiled = scratch_folder.shared_compile_cache()
    (folder / "mine.txt").write_text(PRECIOUS)
    return [str(folder), profile_ranks.rank_folder(0), *compiled.values()]


def swept(place: Path) -> list[int]:
    tempfile.tempdir = str(place)
    found = scratch_folder.sweep_abandoned()
    profile_ranks.rank_folder(1)
    return found


@pytest.mark.parametrize("other", [BOB, 0])
def test_temporary_files_are_their_users_alone(place: Path, other: int) -> None:
    """Those of a job that has ended too, which its user's next job removes."""
    made = by(ALICE, lambda: scratched(place))
    assert len(made) == 3, made
    for folder in map(Path, made):
        found = folder.lstat()
        assert found.st_uid == ALICE and stat.S_IMODE(found.st_mode) == 0o700
    assert by(other, lambda: swept(place)) == [] and all(Path(folder).is_dir() for folder in made)
    assert by(BOB, lambda: [os.access(folder, os.R_OK | os.X_OK) for folder in made]) == [False] * 3
    assert by(ALICE, lambda: swept(place)) == []
    assert [Path(folder).is_dir() for folder in made] == [False, False, True]


@pytest.mark.parametrize("user", slow.first([BOB, 0]))
def test_names_that_another_user_took_first_are_not_used(place: Path, user: int) -> None:
    """Folders, and links to folders of one's own."""
    (mine := place / "mine").mkdir()
    (mine / "mine.txt").write_text(PRECIOUS)
    os.chown(mine, user, user)

    def trap() -> None:
        (place / f"{scratch_folder.OUTLASTING}-{user}").symlink_to(mine)
        (place / "profzoo-rank-0").symlink_to(mine)
        (place / f"{scratch_folder.PREFIX}trap").symlink_to(mine)
        (place / f"{profile_ranks.PREFIX}0-trap").symlink_to(mine)
        (place / f"{profile_ranks.PREFIX}0-folder").mkdir()
        (place / f"{profile_ranks.PREFIX}0-folder" / profile_ranks.PROCESS).write_text("1:1:1")

    assert by(ALICE, trap) is None
    folder, rank, *compiled = by(user, lambda: scratched(place))
    assert compiled == [] and Path(rank).lstat().st_uid == Path(folder).lstat().st_uid == user
    assert by(user, lambda: swept(place)) == []
    assert [path.name for path in mine.iterdir()] == ["mine.txt"]
    assert (place / f"{profile_ranks.PREFIX}0-folder" / profile_ranks.PROCESS).exists()


def test_what_another_user_put_beside_a_claim_stays(place: Path) -> None:
    job = {"sidecar": place / "s.json"}
    home = transaction.private_home(job["sidecar"])

    def trap() -> None:
        (home / ("a" * 12)).mkdir()
        (home / ("a" * 12) / "file").write_text(PRECIOUS)

    home.mkdir()
    home.chmod(0o1777)
    os.chown(home, BOB, BOB)
    assert by(ALICE, trap) is None

    def begun() -> str:
        with transaction.begin(job) as work:
            return work.run

    for user in (0, BOB):
        assert len(by(user, begun)) == 12
    assert (home / ("a" * 12) / "file").read_text() == PRECIOUS
