# Needs: nothing. Checks configuration files before Snakemake reads them. YAML would use the later of two equal keys,
# read 010 as 8, and expand a few lines to more than fits into memory.
from pathlib import Path

from profzoo.config import configuration
from profzoo.errors import run_checked

CONFIGURED = Path("config/config.yaml")


# If this workflow is a module, the files belong to the workflow that uses it and are not checked.
if MAIN and workflow.is_main_process:
    run_checked(
        configuration.check_files,
        [
            *([CONFIGURED] if CONFIGURED.exists() else []),
            *map(Path, workflow.overwrite_configfiles),
        ],
    )
