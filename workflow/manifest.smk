# What the workflow consists of. Snakefile and workflow/Snakefile include it: the one for who works in a checkout, the
# other where Snakemake's workflow catalog and its tools look.
from snakemake.utils import min_version

min_version("9.27")


include: "rules/source.smk"
include: "rules/terminal.smk"
include: "rules/written.smk"


# A module has its configuration from the workflow that uses it, a folder without that file the defaults.
if MAIN and CONFIGURED.exists():

    configfile: "config/config.yaml"


# Used with --sdm apptainer only; containers/profzoo.def builds it.
container: "containers/profzoo.sif"


report: "report/workflow.rst"


pathvars:
    # Results of a named run stand apart from those without a name.
    results=f"runs/{config['run']}" if config.get("run") else "results",
    logs="<results>/logs",
    benchmarks="<results>/benchmarks",


include: "rules/config.smk"
include: "rules/selection.smk"


# A copy of results has other times than those that they were made at, and no record of how: by them all would be made anew.
if config["collect"]:

    include: "rules/collect.smk"
    include: "rules/import.smk"
    include: "rules/export.smk"
    include: "rules/sample.smk"
    include: "rules/trials.smk"

    # Those of tools from outside, by what the files above define.
    for path in extensions.files("tools/*/*.smk"):

        include: str(path)


include: "rules/analyze.smk"
include: "rules/compare.smk"
include: "rules/figures.smk"
include: "rules/maintain.smk"
