"""Limits of time, as jobs are told them."""

from pathlib import Path
from typing import Any

import pytest

from profzoo.errors import ConfigError
from profzoo.machine import job_limits
from profzoo.machine.job_limits import Limits

# Limits of time.


def test_a_job_may_take_ten_times_its_plan_and_an_hour_or_a_day_without_one() -> None:
    told = Limits(time_s={"ncu": "plan", "time": 90, "nsys": None})
    assert told.seconds("ncu", 60.0) == 10 * 60 + 3600 and told.seconds("ncu", 0.0) == 3600
    assert told.seconds("ncu", None) == 24 * 60 * 60
    # What is no tool's has the limit of time; and what nobody limits has none.
    assert [told.seconds(job, 60.0) for job in ("time", "train", "peaks", "probe")] == [90.0] * 4
    assert told.seconds("nsys", 60.0) is None and told.seconds("torch", 60.0) is None
    assert Limits().seconds("time", 60.0) is None
    assert job_limits.format_timeout("probe", 90.0).startswith(
        "probe took longer than 90 s"
    ) and "raise time.time_limit" in job_limits.format_timeout("probe", 90.0)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2m", 120),
        ("2min", 120),
        ("1.5h", 5400),
        (".5m", 30),
        ("720h", 2_592_000),
        (2_592_000, 2_592_000),
        (" 7 s ", 7),
        (0.25, 0.25),
    ],
)
def test_times_are_seconds(given: str | float, seconds: float) -> None:
    assert job_limits.parse_seconds(given, "a.b") == seconds


@pytest.mark.parametrize("given", ["0", "0h", "720.1h", 2_592_001, "-1", "1d", "", "1e3", "1234567890", "1:30", True])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a\.b = "):
        job_limits.parse_seconds(given, "a.b")


def configured(folder: str = "/locks", wait: Any = None, limit: Any = "plan", budget: Any = "1h") -> dict:
    return {
        "locks": {"folder": folder, "wait": wait, "overlap": True},
        "ncu": {"time_limit": limit},
        "trials": {"budget": budget},
        "equivalence_margin": 0.03,
    }


def test_jobs_are_told_what_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(job_limits.LIMITS, raising=False)
    assert job_limits.read_limits() == Limits(Path("/tmp/profzoo-gpus"), None, False, None)
    monkeypatch.setenv(job_limits.LIMITS, "{}")
    job_limits.export_limits(configured(wait="2m", limit="3m"), ["ncu"])
    assert job_limits.read_limits() == Limits(Path("/locks"), 120.0, True, {"ncu": 180.0}, 3600.0, 0.03, 1)
    job_limits.export_limits(configured(budget="2m"), ["ncu"], comparisons=7)
    assert job_limits.read_limits() == Limits(Path("/locks"), None, True, {"ncu": "plan"}, 120.0, 0.03, 7)
    job_limits.export_limits(configured(limit=None), ["ncu"])
    assert job_limits.read_limits().time_s == {"ncu": None}


@pytest.mark.parametrize(
    ("given", "key"),
    [({"folder": "locks"}, r"locks\.folder"), ({"wait": "x"}, r"locks\.wait"), ({"limit": "x"}, r"ncu\.time_limit"),
     ({"budget": "x"}, r"trials\.budget")],
)  # fmt: skip
def test_what_jobs_cannot_be_told_is_refused(given: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} = "):
        job_limits.export_limits(configured(**given), ["ncu"])
