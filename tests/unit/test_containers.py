"""The two container files and the script that both run: each is read as its program would, and both must hold the same."""

import os
import re
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Image:
    """What a container file makes; copied: paths of the project and where they go, commands: those of its build.

    path: the first folder in which programs are looked for.
    """

    base: str
    copied: dict[str, str]
    commands: list[str]
    path: str
    user: str = ""


def lines(name: str) -> list[str]:
    """The lines that say something, those that a backslash continues joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (PROJECT / name).read_text())
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def dockerfile() -> Image:
    found = [line.split(None, 1) for line in lines("containers/Dockerfile")]
    given = dict(rest.split("=") for name, rest in found if name == "ARG")
    found = [(name, re.sub(r"\$(\w+)", lambda named: given[named[1]], rest)) for name, rest in found]
    assert [name for name, _ in found].count("FROM") == 1 and found[0][0] == "FROM"
    by_name = {name: [rest for other, rest in found if other == name] for name, _ in found}
    commands = [part.strip() for rest in by_name["RUN"] for part in rest.split("&&")]
    copied = dict(rest.rsplit(None, 1) for rest in by_name["COPY"])
    assert not {"ADD", "ONBUILD"} & by_name.keys()
    variables = dict(word.split("=") for rest in by_name["ENV"] for word in rest.split())
    return Image(by_name["FROM"][0], into_files(copied), commands, variables["PATH"].split(":")[0], by_name["USER"][-1])


def into_files(copied: dict[str, str]) -> dict[str, str]:
    """Say of each file where it goes, and not the folder into which all go."""
    return {source: target for words, into in copied.items() for source, target in files_into(words.split(), into)}


def files_into(sources: list[str], into: str) -> list[tuple[str, str]]:
    assert len(sources) == 1 or into.endswith("/")
    return [(source, into + PurePosixPath(source).name if into.endswith("/") else into) for source in sources]


def definition() -> Image:
    header: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    into: list[str] | None = None
    for line in given_values(lines("containers/profzoo.def")):
        if line.startswith("%"):
            into = sections.setdefault(line[1:], [])
        elif into is not None:
            into.append(line.strip())
        else:
            key, value = line.split(": ")
            header[key] = value
    assert header["Bootstrap"] == "docker"
    path = re.search(r'export PATH="([^:"]+):\$PATH"', "\n".join(sections["environment"]))
    assert path
    return Image(header["From"], dict(line.split() for line in sections["files"]), sections["post"], path[1])


def given_values(told: list[str]) -> list[str]:
    """Replace names in braces by what %arguments gives them; the command line may give them something else."""
    values = dict(line.strip().split("=") for line in told if re.fullmatch(r"    [A-Z]+=\S+", line))
    return [re.sub(r"{{ (\w+) }}", lambda named: values[named[1]], line) for line in told]


def script() -> list[str]:
    return lines("containers/install.sh")


IMAGES = pytest.mark.parametrize("image", [dockerfile(), definition()], ids=["Dockerfile", "profzoo.def"])


def test_both_run_the_script_and_hold_the_same() -> None:
    one, other = dockerfile(), definition()
    assert (one.base, one.copied, one.path) == (other.base, other.copied, other.path)
    run = f"{one.copied['containers/install.sh']} {one.copied['requirements.lock']}"
    assert other.commands == [run] and one.commands[0] == run
    # Docker's does not run as root.
    (user,) = one.commands[1:]
    assert one.user not in ("", "root", "0") and user.startswith("useradd") and user.endswith(f" {one.user}")
    path = PROJECT / "containers" / "install.sh"
    assert os.access(path, os.X_OK) and path.read_text().startswith("#!/bin/sh\n") and "set -eu" in script()
    subprocess.run(["/bin/sh", "-n", str(path)], check=True)


def test_exactly_the_lock_is_installed_where_programs_are_looked_for() -> None:
    (install,) = [command for command in script() if "pip install" in command]
    for word in ("--require-hashes", "--no-deps", "--no-cache-dir", '--requirement "$1"'):
        assert word in install
    (made,) = [command.split()[-1] for command in script() if "-m venv" in command]
    assert install.startswith(f"{made}/bin/python ") and dockerfile().path == f"{made}/bin"


def test_the_script_installs_by_apt_what_jobs_need_and_keeps_no_lists() -> None:
    (words,) = [command.split() for command in script() if command.startswith("apt-get install")]
    assert {"git", "rsync", "g++", "python3-dev", "python3-venv"} <= set(words)
    assert "--no-install-recommends" in words and "rm -rf /var/lib/apt/lists/*" in script()


@IMAGES
def test_the_base_is_a_debian_whose_python_the_project_takes(image: Image) -> None:
    least = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"]
    pythons = {"bookworm": (3, 11), "trixie": (3, 13)}
    name = re.fullmatch(r"debian:(\w+)-slim(@sha256:[0-9a-f]{64})?", image.base)
    assert name and pythons[name[1]] >= tuple(map(int, least.removeprefix(">=").split(".")))


@IMAGES
def test_only_files_of_the_project_are_copied(image: Image) -> None:
    for source in image.copied:
        path = PurePosixPath(source)
        assert not path.is_absolute() and ".." not in path.parts and (PROJECT / path).is_file()
    kept = [line[1:] for line in lines(".dockerignore") if line.startswith("!")]
    assert lines(".dockerignore")[0] == "*" and len(kept) == len(image.copied)
    assert all(any(PurePosixPath(source).match(pattern) for pattern in kept) for source in image.copied)


@pytest.mark.skipif(os.getuid() != 0, reason="takes root, to be somebody else")
@pytest.mark.parametrize("there", ["nothing", "own", "another's", "a link"])
def test_a_container_takes_no_cache_that_another_user_put_there(there: str) -> None:
    """Apptainer's /tmp is the host's; torch runs kernels that it finds in its cache."""
    user, other = 65534, 65533
    text = re.split(r"(?m)^%environment$", (PROJECT / "containers" / "profzoo.def").read_text())[1]
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        cache = folder / f"profzoo-cache-{user}"
        mine = folder / "mine"
        mine.mkdir()
        if there in ("own", "another's"):
            cache.mkdir()
        elif there == "a link":
            cache.symlink_to(mine)
        for path, owner in ((mine, user), (cache, user if there == "own" else other)):
            if path.exists():
                os.chown(path, owner, owner, follow_symlinks=False)
        script = text.replace("/tmp/", f"{folder}/") + '\nprintf "%s" "$XDG_CACHE_HOME"\n'
        for _ in range(2):
            found = subprocess.run(
                ["/bin/sh", "-c", script], user=user, group=user, extra_groups=[], capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            given = Path(found.stdout)
            assert not found.stderr and given.lstat().st_uid == user and given.lstat().st_mode & 0o777 == 0o700
            assert (given == cache) == (there in ("nothing", "own")) and not given.is_symlink()
        assert mine.stat().st_mode & 0o777 == 0o755
