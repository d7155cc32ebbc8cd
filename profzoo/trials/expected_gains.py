"""Write the gains that verdicts expect of settings, so that trials begin with the largest expected gain."""

from collections.abc import Mapping
from typing import Any

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_json
from profzoo.trials import candidate_settings
from profzoo.verdicts import table_columns


def main(verdicts: str, config: Mapping[str, Any], batches: Mapping[str, int], output: str) -> None:
    """Read the verdicts and write expected gains by cell and candidate."""
    write_json(
        {
            "cells": candidate_settings.expected_gains(
                reading.read(verdicts, table_columns.VERDICTS_TABLE), config, batches
            )
        },
        output,
    )
