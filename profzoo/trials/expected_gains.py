"""Write what is expected of the plans of each cell, so that trials begin with the best plans."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_json
from profzoo.plans.table_columns import PLANS_TABLE
from profzoo.trials import candidate_settings

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config


def main(plans: str, config: "Config", batches: Mapping[str, int], output: str) -> None:
    """Read the plans and write expected gains by cell and candidate."""
    found = candidate_settings.expected_gains(reading.read(plans, PLANS_TABLE), config, batches)
    write_json({"cells": found}, output)
