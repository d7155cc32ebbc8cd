"""Which lock fits a real driver, against what the driver itself says that it can run."""

import ctypes

import pytest

from profzoo.machine import choose_lock, doctor_checks
from profzoo.versions import BUILDS


def test_the_lock_is_of_the_newest_cuda_that_the_driver_runs(capsys: pytest.CaptureFixture[str]) -> None:
    # The driver's own library says 13000 for CUDA 13.0.
    stated = ctypes.c_int()
    assert ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(stated)) == 0
    able = [build for build in BUILDS if int(build.major) <= stated.value // 1000]
    assert choose_lock.main([]) == 0
    printed = capsys.readouterr()
    print(printed.err)
    assert printed.out.strip() == able[-1].lock and "because the driver is " in printed.err
    finding = doctor_checks.check_lock()
    assert finding.advice is None and finding.found.startswith(f"{able[-1].lock} (")
