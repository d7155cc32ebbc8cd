"""Secrets of settings: digests stand in their places until a program uses them."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profzoo import run
from profzoo.cell import data_files, secret_detection, secret_values, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.records.import_graph import PROJECT
from profzoo.workflow import command_lines
from tests.unit.collected import collected

TOKEN = "hx92kQ7fLw03mZpT5vBc"
FACTS = json.dumps({"torch": "2", "device_type": "cpu"})
GITHUB = "ghp_" + "aB3dE6" * 6


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No secrets of other tests, and none left for them."""
    monkeypatch.chdir(tmp_path_factory.mktemp("run"))
    monkeypatch.setenv(secret_values.FILE, "")


def taken(**given: Any) -> dict[str, Any]:
    return secret_values.take(configuration.normalise_config(given))


def test_a_digest_stands_in_the_place_of_each_secret() -> None:
    arguments = {"token": TOKEN, "auth": {"user": "me-and-you"}, "note": GITHUB, "pin": 4711, "n": 3, "tokens": 128}
    root = f"https://me:{TOKEN}@host/data"
    config = taken(data={"arguments": arguments, "root": root}, settings={"lstm": {"data": {"arguments": arguments}}},
                   variants={"other": {"data": {"root": root}}})  # fmt: skip
    written = json.dumps(config)
    for secret in (TOKEN, "me-and-you", GITHUB, "4711", "me:"):
        assert secret not in written
    found = config["data"]["arguments"]
    assert (found["n"], found["tokens"]) == (3, 128) and secret_values.PLACEHOLDER.fullmatch(found["token"])
    assert config["data"]["root"].endswith("@host/data") and config["data"]["root"].startswith("https://<secret ")
    assert config["variants"]["bf16"] == {"precision": "bf16"}
    assert secret_values.reveal_secrets(config["data"])["arguments"] == arguments
    assert secret_values.reveal_secrets(config["variants"]["other"]["data"]) == {"root": root}
    assert secret_values.mask_secrets(f"no {TOKEN}") == f"no {found['token']}"


def test_words_of_a_cell_resolve_to_it_and_its_secrets() -> None:
    config = taken(settings={"lstm": {"data": {"arguments": {"token": TOKEN}}}})
    cell = settings.resolve_cell("lstm", "train", "time", config)
    model, phase, *words = settings.setting_words(cell)
    assert TOKEN not in " ".join(words)
    again = run.resolve_words(model, phase, "time", words)
    assert again == cell and secret_values.reveal_secrets(again)["data"]["arguments"] == {"token": TOKEN}


def test_what_a_digest_stands_for_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["lstm", "train", 'data.arguments={"token": "<secret 0123456789abcdef>"}']) == 2
    assert capsys.readouterr().err == (
        "profzoo: what <secret 0123456789abcdef> stands for is not known here: give the setting that holds it its value "
        "again\n"
    )


def test_lines_on_what_is_wrong_tell_no_secret() -> None:
    wrong: list[dict[str, Any]] = [
        {"settings": {"lstm": {"access_token": TOKEN}}}, {"variants": {"a": {"api_key": TOKEN}}}, {"password": TOKEN},
        {"data": {"token": TOKEN}}, {"batch": {"token": TOKEN}}, {"seed": f"https://me:{TOKEN}@host"},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(ConfigError) as error:
            configuration.normalise_config(given)
        assert TOKEN not in str(error.value)
    config = taken(data={"source": "folder", "root": f"https://me:{TOKEN}@host/data"})
    with pytest.raises(ConfigError, match=r"data\.root = 'https://<secret [0-9a-f]{16}>@host/data' is not a folder"):
        data_files.data_set_folder({"model": "unet", "data": config["data"]})


@pytest.mark.parametrize("word", [f"--comment=MY_TOKEN={TOKEN}", f"--note={GITHUB}", f"https://me:{TOKEN}@host"])
def test_words_of_a_profiler_may_hold_none(word: str) -> None:
    with pytest.raises(ConfigError, match=r"^nsys\.extra holds .*name that under `variables`$") as error:
        taken(nsys={"extra": [word]})
    assert TOKEN not in str(error.value) and GITHUB not in str(error.value)


def test_a_program_has_them_from_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = taken(data={"arguments": {"token": TOKEN, "password": "unasked-for"}})["data"]["arguments"]
    assert secret_values.hand_over_secrets({"cell": {"batch": 8}}, tmp_path) == {} and not list(tmp_path.iterdir())
    given = secret_values.hand_over_secrets({"cell": {"token": cell["token"]}}, tmp_path)
    path = Path(given[secret_values.FILE])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and "unasked-for" not in path.read_text()
    monkeypatch.setenv(secret_values.FILE, str(path))
    assert secret_values.reveal_secrets(cell["token"]) == TOKEN
    with pytest.raises(ConfigError, match="is not known here"):
        secret_values.reveal_secrets(cell["password"])


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_program_prints_of_them_stays_in_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    place = taken(data={"arguments": {"token": TOKEN}})["data"]["arguments"]["token"]
    (tmp_path / "told").write_text(TOKEN)
    prints = f'echo "profzoo: no way to $(cat {tmp_path}/told)"'
    line = f"{prints}; echo x > {tmp_path}/out; echo '{FACTS}' > {tmp_path}/s.json; exit {code}"
    assert collected(tmp_path, "sh", "-c", line) == bool(code)
    log = (tmp_path / "log").read_text()
    assert TOKEN not in log and f"no way to {place}" in log
    said = capsys.readouterr().err
    assert TOKEN not in said and (place in said) == bool(code)


def test_what_a_program_leaves_of_them_fails_its_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken(data={"arguments": {"token": TOKEN}})
    (tmp_path / "told").write_text(TOKEN)
    line = f"cp {tmp_path}/told {tmp_path}/out; echo '{FACTS}' > {tmp_path}/s.json"
    assert collected(tmp_path, "sh", "-c", line) == 1
    said = capsys.readouterr().err
    assert said == (
        "profzoo: out holds the secret data.arguments.token of the settings: keep the program from printing it\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("local", [True, False])
def test_processes_of_snakemake_are_handed_digests(monkeypatch: pytest.MonkeyPatch, local: bool) -> None:
    place = taken(data={"arguments": {"token": TOKEN}})["data"]["arguments"]["token"]
    told = SimpleNamespace(config_args=["batch=8", f"data={{arguments: {{token: {TOKEN}}}}}"])
    workflow, lines = SimpleNamespace(config_settings=told), list[str]()
    monkeypatch.setattr(sys, "argv", ["snakemake", "--config", *told.config_args])
    if local:
        command_lines.hide_secrets(workflow, secret_values.known_secrets(), local, lines.append)
        assert told.config_args == ["batch=8", f"data={{arguments: {{token: {place}}}}}"]
        assert sys.argv == ["snakemake", "--config", *told.config_args]
        assert lines[0].startswith(
            "warning: data.arguments.token is a secret, which --config shows in the list of proc"
        )
    else:
        with pytest.raises(ConfigError, match=r"data\.arguments\.token is a secret, which --config shows .* each node"):
            command_lines.hide_secrets(workflow, secret_values.known_secrets(), local, lines.append)


def test_no_environment_holds_them_as_nsys_records_those_of_all_processes() -> None:
    taken(data={"arguments": {"token": TOKEN}})
    assert not [name for name, value in os.environ.items() if TOKEN in value]
    path = Path(os.environ[secret_values.FILE])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and not stat.S_IMODE(path.parent.stat().st_mode) & 0o077


def test_their_file_ends_with_its_run_and_that_of_a_killed_one_with_the_next(tmp_path: Path) -> None:
    given = {"data": {"arguments": {"token": TOKEN}}}
    begin = f"from profzoo.cell import secret_values; secret_values.take({given!r}); "
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    for end, left in (("", 0), ("import os; os._exit(9)", 1)):
        subprocess.run([sys.executable, "-c", begin + end], cwd=tmp_path, env=environment, check=False)
        assert len(list((tmp_path / secret_values.FOLDER).iterdir())) == left
    next_one = "from profzoo.cell import secret_values; secret_values.take({'seed': 1})"
    subprocess.run([sys.executable, "-c", next_one], cwd=tmp_path, env=environment, check=True)
    assert not list((tmp_path / secret_values.FOLDER).iterdir())


@pytest.mark.parametrize(
    "text", [f"https://{TOKEN}@example.com/x", "https://hooks.slack.com/services/T00000000/B00000000/aB3dE6aB3dE6aB3dE6aB3dE6",
             "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQdGBGI\n-----END PGP PRIVATE KEY BLOCK-----"]
)  # fmt: skip
def test_secrets_are_told_by_their_look(text: str) -> None:
    assert list(secret_detection.secrets_by_pattern(text))


@pytest.mark.parametrize(
    ("key", "secret"),
    [("token", True), ("HF_TOKEN", True), ("passwordValue", True), ("private_key", True), ("client_secret", True),
     ("auth", True), ("apikey", True), ("mask_token", False), ("tokenizer", False), ("key", False), ("author", False),
     ("secretary", False), ("token_type", False), ("password_file", False)],
)  # fmt: skip
def test_secrets_are_told_by_keys(key: str, secret: bool) -> None:
    assert secret_detection.is_secret_key(key, "x") == secret
    assert not secret_detection.is_secret_key(key, None) and not secret_detection.is_secret_key(key, True)


@pytest.mark.parametrize(
    "text", ["task-sk-aaaaaaaaaaaaaaaaaaaaaaaa", "https://host:8080/a@b", "ssh://git@github.com/a/b", "a:b@c", "hf_short",
             "_ZN2at6nativehf_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
)  # fmt: skip
def test_what_only_resembles_secrets_is_none(text: str) -> None:
    assert not list(secret_detection.secrets_by_pattern(text))
