"""The two container files, which nothing builds here: each is read as its program would, and both must hold the same."""

import os
import re
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

PROJECT = Path(__file__).parents[2]
INSTRUCTIONS = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN",
    "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
SECTIONS = {
    "appenv", "appfiles", "apphelp", "appinstall", "applabels", "apprun", "apptest", "arguments", "environment",
    "files", "help", "labels", "post", "pre", "runscript", "setup", "startscript", "test",
}  # fmt: skip
HEADERS = {"Bootstrap", "From", "Stage", "Fingerprints", "Include", "OSVersion", "MirrorURL", "Registry"}


@dataclass(frozen=True)
class Image:
    """What a container file makes; copied: paths of the project and where they go, commands: those of its build."""

    base: str
    copied: dict[str, str]
    commands: list[str]
    user: str = ""

    def packages(self) -> set[str]:
        """What it installs by apt."""
        (words,) = [command.split() for command in self.commands if command.startswith("apt-get install")]
        return {word for word in words[2:] if not word.startswith("-")}


def lines(name: str) -> list[str]:
    """The lines that say something, those that a backslash continues joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (PROJECT / name).read_text())
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def dockerfile() -> Image:
    """The Dockerfile."""
    found = [line.split(None, 1) for line in lines("containers/Dockerfile")]
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert [name for name, _ in found].count("FROM") == 1 and found[0][0] == "FROM"
    by_name = {name: [rest for other, rest in found if other == name] for name, _ in found}
    commands = [part.strip() for rest in by_name["RUN"] for part in rest.split("&&")]
    copied = dict(rest.split() for rest in by_name["COPY"])
    assert not {"ADD", "ONBUILD"} & by_name.keys()
    return Image(by_name["FROM"][0], copied, commands, by_name["USER"][-1])


def definition() -> Image:
    """The definition for Apptainer."""
    header: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    into: list[str] | None = None
    for line in lines("containers/profzoo.def"):
        if line.startswith("%"):
            assert line[1:] in SECTIONS
            into = sections.setdefault(line[1:], [])
        elif into is not None:
            into.append(line.strip())
        else:
            key, value = line.split(": ")
            assert key in HEADERS
            header[key] = value
    assert header["Bootstrap"] == "docker"
    return Image(header["From"], dict(line.split() for line in sections["files"]), sections["post"])


IMAGES = pytest.mark.parametrize("image", [dockerfile(), definition()], ids=["Dockerfile", "profzoo.def"])


def test_both_hold_the_same() -> None:
    one, other = dockerfile(), definition()
    assert (one.base, one.copied, one.packages()) == (other.base, other.copied, other.packages())
    assert [command for command in one.commands if "pip" in command] == [
        command for command in other.commands if "pip" in command
    ]


@IMAGES
def test_exactly_the_lock_is_installed(image: Image) -> None:
    (install,) = [command for command in image.commands if "pip install" in command]
    (target,) = [target for source, target in image.copied.items() if source == "requirements.lock"]
    for word in ("--require-hashes", "--no-deps", "--no-cache-dir", f"--requirement {target}"):
        assert word in install
    assert install.split()[-1] == target


@IMAGES
def test_the_base_is_a_python_that_the_project_takes(image: Image) -> None:
    least = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"]
    name = re.fullmatch(r"python:(\d+)\.(\d+)-slim(@sha256:[0-9a-f]{64})?", image.base)
    assert name
    assert (int(name[1]), int(name[2])) >= tuple(map(int, least.removeprefix(">=").split(".")))


@IMAGES
def test_only_files_of_the_project_are_copied_and_no_lists_kept(image: Image) -> None:
    for source in image.copied:
        path = PurePosixPath(source)
        assert not path.is_absolute() and ".." not in path.parts and (PROJECT / path).is_file()
    assert "rm -rf /var/lib/apt/lists/*" in image.commands
    kept = [line[1:] for line in lines(".dockerignore") if line.startswith("!")]
    assert lines(".dockerignore")[0] == "*" and set(image.copied) == set(kept)


def test_the_docker_image_does_not_run_as_root() -> None:
    image = dockerfile()
    assert image.user not in ("", "root", "0")
    assert any(command.startswith("useradd") and command.endswith(f" {image.user}") for command in image.commands)


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
