"""Fixtures that tests of the documentation share with those of the workflow: a project with results, built once."""

from tests.workflow.conftest import built, recorded, torch_build, untouched

__all__ = ["built", "recorded", "torch_build", "untouched"]
