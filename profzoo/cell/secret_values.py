"""Keeps secrets out of job texts: a digest stands in for each secret setting, and the value travels separately.

Jobs, sidecars, records, logs and command lines hold only the digest, so that a changed secret runs a cell again. The
values lie in a file that only its owner can read. It exists as long as the process that read the configuration. They
are in no environment variable, as nsys records the environments of the user's processes. The variable FILE names the
file to the workflow's own processes. A profiled process gets a separate file and inserts the values when it needs them.
"""

import atexit
import hashlib
import json
import os
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from profzoo.cell import secret_detection
from profzoo.errors import ConfigError
from profzoo.machine import file_locks

# Variable that names a JSON file of keys and values by placeholder; and the path of the workflow's own file, in the
# folder that snakemake runs in, which all nodes share.
FILE, FOLDER = "PROFZOO_SECRETS_FILE", Path(".snakemake/profzoo/secrets")
NEW, SUFFIX = ".new-", ".json"
PLACEHOLDER = re.compile(r"<secret [0-9a-f]{16}>")
# A slow digest (tens of milliseconds): guesses could reverse a fast digest of a short password.
COST, SALT = 2**13, b"profzoo"
# Shorter values occur in texts by chance.
SHORTEST = 4
# Settings of cells, by model and by variant.
NAMED = ("settings", "variants")

# Key and value by placeholder.
Secrets = Mapping[str, tuple[str, Any]]


def make_placeholder(value: Any) -> str:
    """Text that replaces a secret; equal for equal values."""
    digest = hashlib.scrypt(json.dumps(value).encode(), salt=SALT, n=COST, r=8, p=1, dklen=8)
    return f"<secret {digest.hex()}>"


def conceal_secrets(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, Any]]]:
    """Replace secrets in cell settings of a checked configuration; returns it and the secrets by placeholder.

    Raises:
        ConfigError: a profiler's options contain a secret, which its report would record.
    """
    found: dict[str, tuple[str, Any]] = {}
    for tool, part in config.items():
        if isinstance(part, Mapping) and (kind := _in_words(part.get("extra", []))):
            raise ConfigError(
                f"{tool}.extra holds {kind}, and reports record all words of a command: export it as a variable, and "
                "name that under `variables`"
            )
    changed = dict(config)
    if "data" in config:
        changed["data"] = _conceal(config["data"], "data", found)
    for part in NAMED:
        given = config.get(part, {})
        changed[part] = {name: _conceal(one, f"{part}.{name}", found) for name, one in given.items()}
    return changed, found


def _in_words(words: Sequence[str]) -> str | None:
    """Kind of secret that command line words contain, such as `--env-var=MY_TOKEN=...`; None if there is none."""
    for word in map(str, words):
        if kind := next((kind for kind, _ in secret_detection.secrets_by_pattern(word)), None):
            return kind
        for name, value in re.findall(r"(\w+)=(?=([^=,]+))", word):
            if secret_detection.is_secret_key(name, value):
                return f"the value of {name}"
    return None


def replace_all_secrets(value: Any) -> Any:
    """Replace all secrets in a JSON value by placeholders, for display only."""
    return _conceal(value, "", {})


def find_secrets(value: Any) -> dict[str, tuple[str, Any]]:
    """Secrets in a JSON value, by placeholder."""
    found: dict[str, tuple[str, Any]] = {}
    _conceal(value, "", found)
    return found


def _conceal(value: Any, where: str, found: dict[str, tuple[str, Any]], secret: bool = False) -> Any:
    """Replace secrets below `where` (a key); secret: whether an enclosing key says that the value is one."""
    if isinstance(value, Mapping):
        return {
            key: _conceal(one, f"{where}.{key}" if where else str(key), found,
                          secret or secret_detection.is_secret_key(str(key), one))
            for key, one in value.items()
        }  # fmt: skip
    if isinstance(value, list | tuple):
        return [_conceal(one, where, found, secret) for one in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if secret and value != "" and not (isinstance(value, str) and PLACEHOLDER.search(value)):
        return _put(value, where, found)
    if isinstance(value, str):
        for _, one in list(secret_detection.secrets_by_pattern(value)):
            value = value.replace(one, _put(one, where, found))
    return value


def _put(value: Any, where: str, found: dict[str, tuple[str, Any]]) -> str:
    name = make_placeholder(value)
    found[name] = (where, value)
    return name


def take(config: Mapping[str, Any]) -> dict[str, Any]:
    """Replace secrets in the configuration; this process and its children can then resolve the placeholders.

    Raises:
        ConfigError: as for `conceal_secrets`; or the file of secrets cannot be written.
    """
    changed, found = conceal_secrets(config)
    _sweep()
    # A nested run gets a configuration with placeholders, and their values from the outer run.
    if found.keys() - (before := known_secrets()).keys():
        try:
            os.environ[FILE] = str(_written({**before, **found}))
        except OSError as error:
            raise ConfigError(f"{FOLDER} cannot be written, for secrets of settings: {error.strerror}") from error
    return changed


def _written(secrets: Secrets) -> Path:
    """Write the secrets to a file that exists, locked, as long as this process."""
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, new = tempfile.mkstemp(prefix=f"{NEW}{socket.gethostname()}-", dir=FOLDER)
    with suppress(OSError):
        file_locks.try_lock(descriptor)
    os.write(descriptor, json.dumps(secrets, sort_keys=True).encode())
    # Rename only after locking: the next run could take an unlocked file for a dead run's. The file stays open.
    path = Path(new).absolute().with_name(Path(new).name.removeprefix(NEW) + SUFFIX)
    atexit.register(_end, Path(new).rename(path), os.getpid())
    return path


def _end(path: Path, process: int) -> None:
    # Only the process that wrote the file removes it, not its forks.
    if os.getpid() == process:
        path.unlink(missing_ok=True)


def _sweep() -> None:
    """Remove files left by killed processes of this host; those of other hosts may still be in use."""
    for path in FOLDER.glob(f"{socket.gethostname()}-*{SUFFIX}"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if file_locks.try_lock(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def read_secrets(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """Secrets by placeholder, read from the file that the environment names; empty if the file ended with its run.

    Raises:
        ConfigError: the file cannot be read, or does not have the form that this version writes.
    """
    try:
        text = Path(environment[FILE]).read_text(encoding="utf-8") if environment.get(FILE) else "{}"
        return {name: (key, value) for name, (key, value) in json.loads(text).items()}
    except FileNotFoundError:
        # No error here: the code that needs a missing secret raises one.
        return {}
    except OSError as error:
        raise ConfigError(f"the secrets of settings cannot be read: {error}") from error
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"what the variable {FILE} names is not as profzoo writes it: unset it") from error


def known_secrets() -> dict[str, tuple[str, Any]]:
    """Secrets by placeholder, as far as this process knows them.

    Raises:
        ConfigError: as for `read_secrets`.
    """
    return read_secrets(os.environ)


def hand_over_secrets(job: Any, folder: Path) -> dict[str, str]:
    """Write a job's secrets to a file that only this user can read; returns the variable that names the file.

    Raises:
        ConfigError: what a placeholder stands for is not known here.
    """
    names = set(PLACEHOLDER.findall(json.dumps(job)))
    if not names:
        return {}
    secrets = known_secrets()
    reveal_secrets(sorted(names))
    path = folder / ".secrets.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({name: secrets[name] for name in sorted(names)}, file)
    return {FILE: str(path)}


def reveal_secrets(value: Any) -> Any:
    """Replace placeholders in a JSON value by their secrets.

    Raises:
        ConfigError: what a placeholder stands for is not known here.
    """
    return _reveal(value, known_secrets()) if PLACEHOLDER.search(json.dumps(value, default=str)) else value


def _reveal(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, Mapping):
        return {key: _reveal(one, secrets) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_reveal(one, secrets) for one in value]
    if not isinstance(value, str):
        return value
    if lost := next((name for name in PLACEHOLDER.findall(value) if name not in secrets), None):
        raise ConfigError(f"what {lost} stands for is not known here: give the setting that holds it its value again")
    # A number stays one.
    return secrets[value][1] if value in secrets else PLACEHOLDER.sub(lambda match: str(secrets[match[0]][1]), value)


def mask_secrets(text: str) -> str:
    """Replace the secrets known to this process in a text by placeholders."""
    for name, (_, value) in sorted(known_secrets().items(), key=lambda one: -len(str(one[1][1]))):
        if len(str(value)) >= SHORTEST:
            for form in (str(value), json.dumps(value)[1:-1] if isinstance(value, str) else str(value)):
                text = text.replace(form, name)
    return text
