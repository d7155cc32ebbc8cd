"""Runs one cell by hand, exactly as the workflow's jobs do: `python -m models.run mobilenetv2 train batch=8`."""

import sys

from profzoo.run import main, prepare

__all__ = ["main", "prepare"]

if __name__ == "__main__":
    sys.exit(main())
