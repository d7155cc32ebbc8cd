"""Write the gains that verdicts expect of settings, so that trials begin with the largest expected gain."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_json
from profzoo.trials import candidate_settings
from profzoo.verdicts import table_columns

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config


def main(verdicts: str, config: "Config", batches: Mapping[str, int], output: str) -> None:
    """Read the verdicts and write expected gains by cell and candidate."""
    write_json(
        {
            "cells": candidate_settings.expected_gains(
                reading.read(verdicts, table_columns.VERDICTS_TABLE), config, batches
            )
        },
        output,
    )
