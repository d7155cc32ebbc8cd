"""doctor, clean and document_config: what is missing with what to do, only the given files removed, one row a key."""

import os
from pathlib import Path

import pytest

from models.harness import settings
from models.harness.registry import find
from workflow.scripts import clean, doctor, document_config
from workflow.scripts.lib import config, schema

STANDINS = Path(__file__).parents[1] / "tools/standins"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH without any tool."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("check", "found", "advice"),
    [
        (doctor.check_gpu, "none (nvidia-smi is not on PATH)", "profile on the CPU"),
        (doctor.check_driver, "none", "install the NVIDIA driver"),
        (lambda: doctor.check_tool("ncu"), "not on PATH", "install NVIDIA Nsight Compute"),
        (lambda: doctor.check_tool("nsys"), "not on PATH", "install NVIDIA Nsight Systems"),
        (doctor.check_counters, "not checked, which takes ncu and a GPU", "see ncu and GPU above"),
        (doctor.check_importer, "not checked, which takes nsys", "see nsys above"),
    ],
)
def test_every_lack_has_its_advice(check, found: str, advice: str) -> None:
    finding = check()
    assert finding.found == found and advice in (finding.advice or "")


def test_nothing_is_advised_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    findings = [doctor.check_gpu(), doctor.check_driver(), doctor.check_tool("ncu"), doctor.check_nvtx()]
    assert [finding.advice for finding in findings] == [None] * 4
    assert findings[0].found == "NVIDIA H200, 143771 MiB" and findings[1].found == "580.159.04"


def test_a_torch_that_does_not_import_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = doctor.check_torch()
    assert finding == doctor.Finding("torch", "does not import: ImportError: libcudart.so is missing", "make env")


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        ("2 None False 0", "install a torch built with CUDA"),
        ("2 13.0 False 0", "new enough for CUDA 13.0"),
        ("2 13.0 True 4", None),
    ],
)
def test_a_torch_without_cuda_is_said(monkeypatch: pytest.MonkeyPatch, facts: str, advice: str | None) -> None:
    monkeypatch.setattr(doctor, "TORCH", f"print({facts!r})")
    finding = doctor.check_torch()
    assert (finding.advice is None) if advice is None else advice in (finding.advice or "")


def folder_of(tmp_path: Path, *names: str) -> Path:
    """A results folder with these files."""
    for name in names:
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path / "results"


def test_clean_removes_the_folder_itself_when_nothing_is_left(tmp_path: Path) -> None:
    root = folder_of(tmp_path, "a/b/c.csv", "d.csv")
    assert clean.main([str(root / "a/b/c.csv"), str(root / "d.csv")], str(root)) == "removed 2 files"
    assert not root.exists()


def test_clean_keeps_what_is_not_its_own(tmp_path: Path) -> None:
    root = folder_of(tmp_path, "unet/train.time.csv", "unet/notes.md", "lstm/weights.pt")
    (root / "empty/deep").mkdir(parents=True)
    said = clean.main([str(root / "unet/train.time.csv"), str(root / "lstm/weights.pt")], str(root))
    assert said == "removed 2 files; left 1 that the workflow did not make"
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["unet", "unet/notes.md"]


@pytest.mark.parametrize("made", [[], ["results/gone.csv"]])
def test_clean_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert clean.main(made, "results").startswith("removed ") and not Path("results").exists()


def test_clean_leaves_the_users_links_alone(tmp_path: Path) -> None:
    root = folder_of(tmp_path, "a.csv")
    (tmp_path / "elsewhere").mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    clean.main([str(root / "a.csv")], str(root))
    assert (root / "link").is_symlink() and (tmp_path / "elsewhere").is_dir()


def keys(part: dict, prefix: str = "") -> list[str]:
    """Every key of a schema."""
    found = []
    for key, value in part["properties"].items():
        found += [f"`{prefix}{key}`", *(keys(value, f"{prefix}{key}.") if "properties" in value else [])]
    return found


def test_the_page_has_one_row_a_key() -> None:
    rows = list(document_config.rows(schema.load()))
    assert [row[0] for row in rows] == keys(schema.load()) and all(row[1] and row[3] for row in rows)
    lines = [line for line in document_config.page(schema.load()).splitlines() if line.startswith("| `")]
    columns = {line.count("|") for line in lines[: len(rows)]}
    assert columns == {5} and len(lines) > len(rows)


# Sources of settings that the page names, with what gives a `batch` there; the defaults and the model's file always do.
LEVELS = {
    "the defaults below": None,
    "the model's file": None,
    "the top level of the configuration": lambda value: {"batch": value},
    "`settings` of the model": lambda value: {"settings": {"lstm": {"batch": value}}},
    "the variant": lambda value: {"variants": {"mine": {"batch": value}}},
}


def batch(given: dict) -> int:
    """The batch of a cell with a variant `mine`."""
    return settings.resolve("lstm@mine", "train", "time", config.normalise({"variants": {"mine": {}}} | given))["batch"]


def test_the_page_says_in_which_order_settings_count() -> None:
    text = " ".join(document_config.page(schema.load()).split())
    sentence = text.partition("the later over the earlier, from: ")[2].partition(".")[0]
    assert all(level in sentence for level in LEVELS), sentence
    order = sorted(LEVELS, key=sentence.index)
    own = find("lstm").workloads["trimmed"]["train"]["batch"]
    # The schema's default is null, over which the file's own counts.
    assert batch({}) == own and order.index("the defaults below") < order.index("the model's file")
    settable = {level: give for level, give in LEVELS.items() if give}
    for level, give in settable.items():
        assert (batch(give(own + 1)) == own + 1) == (order.index(level) > order.index("the model's file")), level
        for other, more in settable.items():
            if level != other:
                last = max(level, other, key=order.index)
                assert batch(give(own + 1) | more(own + 2)) == (own + 1 if last == level else own + 2), (level, other)
