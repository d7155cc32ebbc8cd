"""Lists the error messages of nsys, each with its remedy."""

from collections.abc import Sequence

CAUSES: Sequence[tuple[str, str]] = (
    (
        # Without permission it says ERR_NVGPUCTRPERM as well, as ncu does.
        r"(?s)Illegal --gpu-metrics-device(?!.*NVGPUCTRPERM)",
        "nsys cannot sample the metrics of this GPU, whose architecture it does not support: unset nsys.gpu_metrics, "
        "or install a newer Nsight Systems",
    ),
    (
        r"[Ff]ailed to import|Importer error|QdstrmImporter",
        "nsys traced the program but could not import its own trace: its importer is missing or broken (look for a "
        "missing library with `ldd` on QdstrmImporter)",
    ),
    (
        r"Local Endpoint is not available|Connection to Agent lost",
        "nsys did not reach the agent that it starts, or lost it, which happens on a busy machine: run it "
        "again, on a quieter one or with `--retries 2`",
    ),
    (
        r"(?s) per step, .*\nGenerated:\s*\Z",
        "nsys never saw the program's window open, and left no report: without a GPU, an nsys that is older "
        "than this nvtx cannot read its ranges (`snakemake doctor` checks this): install the current Nsight Systems",
    ),
)
