# profzoo: profiles a zoo of PyTorch models as one workflow; `snakemake --list` shows what can be made.
from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"


# Used with --sdm apptainer only; containers/profzoo.def builds it.
container: "containers/profzoo.sif"


report: "workflow/report/workflow.rst"


pathvars:
    results="results",
    logs="<results>/logs",
    benchmarks="<results>/benchmarks",


include: "workflow/rules/common.smk"
include: "workflow/rules/resources.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/export.smk"
include: "workflow/rules/analyze.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/maintain.smk"


rule all:
    """Collect, export, tabulate and draw everything that the configuration selects."""
    default_target: True
    input:
        exports(),
        "<results>/report.html",
