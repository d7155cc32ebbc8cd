# Includes all rules of the workflow. Snakefile includes this file for users of a checkout, and workflow/Snakefile does
# so for Snakemake's workflow catalog and its tools.
include: "rules/source.smk"
include: "rules/terminal.smk"
include: "rules/written.smk"


# A module gets its configuration from the workflow that uses it. A folder without this file gets the defaults.
if MAIN and CONFIGURED.exists():

    configfile: "config/config.yaml"


# This container is used only with --sdm apptainer; containers/profzoo.def builds it.
container: "containers/profzoo.sif"


report: "report/workflow.rst"


pathvars:
    # Results of a named run have a folder of their own.
    results=f"runs/{config['run']}" if config.get("run") else "results",
    logs="<results>/logs",
    benchmarks="<results>/benchmarks",


include: "rules/config.smk"
include: "rules/selection.smk"


# With `collect: false` results are a copy, which has new modification times and no records. These rules would therefore
# make all results again.
if config["collect"]:

    include: "rules/collect.smk"
    include: "rules/import.smk"
    include: "rules/export.smk"
    include: "rules/torch.smk"
    include: "rules/sample.smk"
    include: "rules/trials.smk"

    # Rules of tools in extensions, which use the functions of the files above.
    for path in extensions.files("tools/*/*.smk"):

        include: str(path)


include: "rules/analyze.smk"
include: "rules/compare.smk"
include: "rules/figures.smk"
include: "rules/formats.smk"
include: "rules/maintain.smk"


# Jobs, whose command line names their rule alone, know joint rules too. A workflow that uses this one names rules anew.
if MAIN and (
    not workflow.is_main_process
    or joint_rules.asks_for_all(sys.argv[1:], RESULTS, [rule.name for rule in workflow.rules])
):

    include: "rules/joint.smk"
