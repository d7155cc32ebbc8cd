# profzoo: profiles a zoo of PyTorch models as one workflow; `snakemake --list` shows what can be made.
include: "workflow/rules/versions.smk"
include: "workflow/manifest.smk"


rule all:
    """Collect, export, tabulate and draw everything that the configuration selects."""
    default_target: True
    input:
        TABLES.everything(),
        expand("<results>/tables.{format}", format=config["export"]),
