# Needs: nothing. Makes: checked(), which says what is wrong in one line; looks at configuration files before Snakemake
# reads the one below, as YAML takes the later of two equal keys, 010 for 8, and a few lines for more than memory holds.
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profzoo.config import yaml_checks
from profzoo.errors import ConfigError

CONFIGURED = Path("config/config.yaml")


def checked(function, *arguments):
    """The function's result; what is wrong with the configuration ends the run in one line."""
    try:
        return function(*arguments)
    except ConfigError as error:
        raise WorkflowError(str(error)) from None


# Those of a workflow that this is a module of hold what is its own matter.
if MAIN and workflow.is_main_process:
    checked(
        yaml_checks.check_files,
        [
            *([CONFIGURED] if CONFIGURED.exists() else []),
            *map(Path, workflow.overwrite_configfiles),
        ],
    )
