"""YAML that people write: what means something else than it looks like is one line with file, line, key and cure."""

import re
import time
from pathlib import Path

import pytest
from snakemake.cli import parse_config

from profzoo.cell import schema
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.io import strict_yaml

CHECKOUT = Path(__file__).parents[2]
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def refuse(text: str | bytes) -> str:
        Path("mine.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as error:
            configuration.check_files([tmp_path / "mine.yaml"])
        line = str(error.value)
        assert line.isprintable() and len(line) < 400
        return line

    return refuse


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("batch: 2\nseed: 1\nbatch: 4\n", "mine.yaml, line 3: batch: 'batch' was given in line 1 already, which is lost"),
        ('batch: 2\n"batch": 4\n', "mine.yaml, line 2: batch: 'batch' was given in line 1 already"),
        ("settings:\n  unet: {size: 3}\n  unet:\n    batch: 3\n", "mine.yaml, line 3: settings.unet: 'unet' was given in"),
        ('{"batch": 2,\n\t"seed": 1,\n\t"batch": 4}', "mine.yaml, line 3: batch: 'batch' was given in line 1 already"),
        ("time: {window: -0_17}", "mine.yaml, line 1: time.window: -0_17 is read as -15, in octal: write -15 or -17"),
        ("nsys:\n  delay: 1:30\n", "mine.yaml, line 2: nsys.delay: 1:30 is read as 90, in base 60: write 90, or '1:30'"),
        ("models: [unet, no]", "mine.yaml, line 1: models.*: no is read as false: write false, or 'no' in quotes"),
        ("variants:\n  on: {batch: 3}\n", "mine.yaml, line 2: variants: on is read as true: write 'on' in quotes"),
        ("variants: {8: {batch: 3}}", "mine.yaml, line 1: variants: the key 8 is not a text: write '8' in quotes"),
        ("run: 2024-01-01", "mine.yaml, line 1: run: 2024-01-01 is read as a date: write '2024-01-01' in quotes"),
        ("ncu: {sets: {null: {set: full}}}", "mine.yaml, line 1: ncu.sets: the key null is not a text: write 'null'"),
        ("? [a, b]\n: 2\n", "mine.yaml, line 1: a list or a mapping is not a key: write a text"),
        ("run: !mine a", "mine.yaml, line 1: run: the tag !mine cannot be read here: leave it out"),
        ("run: !!python/name:os.system a", "mine.yaml, line 1: run: the tag !!python/name:os.system cannot be read"),
        (BOMB, "mine.yaml: its aliases (*name) stand for more than 100000 values: write less"),
        ("a: &a\n  b: *a\n", "mine.yaml: its aliases (*name) stand for more than"),
        ("[" * 700, "mine.yaml: it nests too deeply to be read"),
        ("batch: 2\nrun: a: b\n", "mine.yaml, line 2: it is not YAML: mapping values are not allowed here; texts with `:`"),
        ("batch: 2\n\trun: a\n", "mine.yaml, line 2: it is not YAML: "),
        ("batch: 2\n---\nbatch: 3\n", "mine.yaml, line 2: it is not YAML: "),
        ("run: a\0b\n", "mine.yaml: it is not YAML: "),
        (b"seed: 1\nrun: \xff\xfe\n", "mine.yaml, line 2: it is not UTF-8: save it as such"),
    ],
)  # fmt: skip
def test_what_looks_like_something_else_is_refused(refused, text: str | bytes, line: str) -> None:
    # Of this process's CPU, because others may keep it waiting.
    began = time.process_time()
    assert refused(text).startswith(line)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text",
    [
        "", "# nothing\n", "{}", "graph: yes\ncompile: on\nsettings: {unet: {graph: no, mine: off}}", "seed: 0\n",
        "run: '010'\nbatch: 0x10\nepochs: 1_000\n", 'run: !!str 1:30\nmodels: ["no", \'on\']', "run: 08.5.6\n",
        "settings:\n  unet: &u {size: 32}\n  lstm: {<<: *u, size: 8}\n", "batch: null\nnsys: {delay: 1.5}\n",
        '{"run": "a\\/b",\n\t"batch": 3}', "__use_yte__: true\n?if True:\n  batch: 1\n?if False:\n  batch: 2\n",
    ],
)  # fmt: skip
def test_what_means_what_it_looks_like_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    configuration.check_files([tmp_path / "mine.yaml"])


def test_all_files_of_the_checkout_mean_what_they_look_like() -> None:
    files = [path for folder in ("config", ".test/config") for path in (CHECKOUT / folder).glob("*.yaml")]
    configuration.check_files(files)
    own = list((CHECKOUT / "profzoo").rglob("*.yaml"))
    assert len(files) > 2 and len(own) > 9 and all(strict_yaml.load_yaml(path) for path in own)


def test_rules_that_are_given_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("a:\n  floor: 0.5\n  why: x\n  floor: 0.7\n")
    with pytest.raises(ConfigError, match=r"rules\.yaml, line 4: a\.floor: 'floor' was given in line 2 already"):
        strict_yaml.load_yaml(path)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("time={window: 010}", "time.window = '010': 010 is read as 8, in octal: write 8 or 10, or '010' in quotes"),
        ("nsys={delay: 1:30}", "nsys.delay = '1:30': 1:30 is read as 90, in base 60: write 90, or '1:30' in quotes"),
        ("data={arguments: {train: 017}}", "017 is read as 15, in octal: write 15 or 17, or '017' in quotes"),
    ],
)
def test_the_command_line_means_what_it_looks_like(word: str, line: str) -> None:
    asked = parse_config([word])
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        configuration.normalise_config(asked, asked)


def test_texts_that_read_like_numbers_stay_texts() -> None:
    asked = parse_config(["data={root: 1:30, name: '010'}"])
    assert schema.coerce_value(asked, schema.load_schema())["data"]["root"] == "1:30"
