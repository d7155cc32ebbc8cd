# Needs: nothing. Looks at configuration files before Snakemake reads the one below, as YAML takes the later of two equal
# keys, 010 for 8, and a few lines for more than memory holds.
from pathlib import Path

from profzoo.config import yaml_checks
from profzoo.workflow.user_errors import run_checked

CONFIGURED = Path("config/config.yaml")


# Those of a workflow that this is a module of hold what is its own matter.
if MAIN and workflow.is_main_process:
    run_checked(
        yaml_checks.check_files,
        [
            *([CONFIGURED] if CONFIGURED.exists() else []),
            *map(Path, workflow.overwrite_configfiles),
        ],
    )
