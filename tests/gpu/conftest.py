"""Marks all tests of this folder as tests of a GPU, and skips them where torch sees none."""

from pathlib import Path

import pytest
import torch


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests before pytest chooses among them by -m."""
    missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch here")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.gpu)
            item.add_marker(missing)
