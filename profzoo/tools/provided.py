"""Names the files of a cell that rules, tables and pages read whichever tool provides them."""

from collections.abc import Mapping

from profzoo.schema import BASELINE

# What each holds, and in brackets the table or module that declares its form.
PROVIDED: Mapping[str, str] = {
    BASELINE: "steps without a profiler, with their times (profzoo.tools.time.tables.TABLE)",
    f"{BASELINE}_sidecar": "the sidecar of these steps",
    "launch_times": "GPU time per launch configuration and range, with sidecar (profzoo.tools.nsys.tables.TABLE)",
    "steps": "where the time of a step goes (profzoo.tools.nsys.steps.TABLE)",
    "kernels": "time and counters per launch configuration and range (profzoo.tables.kernel_table.TABLE)",
    "trace_database": "the trace as nsys exports it to SQLite (profzoo.tools.nsys.trace)",
    "trace_database_sidecar": "the sidecar of that trace",
    "perfetto_trace": "the whole trace in the Trace Event Format, for Perfetto (profzoo.tools.nsys.perfetto)",
    "timeline": "one typical step of the trace as JSON (profzoo.tools.nsys.timeline)",
    "program": "the traced steps, for what-if simulations (profzoo.what_if.storage)",
    "replay": "what changes would gain, by simulation (profzoo.what_if.tables.GAINS)",
    "host": "host time by cause (profzoo.what_if.tables.TAX)",
    "ranks": "what each process of a cell on several GPUs did per step (profzoo.tools.nsys.ranks.TABLE)",
    "collectives": "collective operations of a cell on several GPUs (profzoo.tools.torch.collective_tables.TABLE)",
    "skew": "which of its processes comes late, and in which part (profzoo.tools.torch.rank_skew.TABLE)",
    "layers": "time and counters per module (profzoo.tables.layers.TABLE)",
    "layer_kernels": "the kernels of each module (profzoo.tables.layer_kernels.TABLE)",
    "fusion": "operators that fewer kernels could compute (profzoo.fusion.table.CHAINS)",
    "fusion_kernels": "the kernels of these operators (profzoo.fusion.table.KERNELS)",
    "operators": "time per operator and its input shapes (profzoo.tables.layers.OPERATORS_TABLE)",
    "activities": "time per operator, range and kernel as torch.profiler has it (profzoo.tools.torch.tables.TABLE)",
    "owners": "how much of the GPU time has an owner (profzoo.tables.owner_coverage.TABLE)",
    "counters": "counters per launch, from which a roofline follows (profzoo.tools.ncu.export_schema.TABLE)",
    "occupancy": "occupancy per launch configuration and its limiter (profzoo.tables.occupancy.TABLE)",
    "memory_chart": "bytes between parts of the memory system (profzoo.tables.memory_chart.TABLE)",
    "pipes": "how busy the pipes of the SMs are (profzoo.tables.pipes.TABLE)",
    "warp_states": "what warps wait for (profzoo.tables.warp_states.TABLE)",
    "coverage": "launch configurations that were counted, of all traced ones (profzoo.tables.ncu_coverage.TABLE)",
    "advice": "the details page of ncu, with its advice (profzoo.tools.ncu.details_page)",
    "advised_launches": "the launches that the advice is about (profzoo.tools.ncu.export_schema.TABLE)",
    "samples": "power and clocks of the GPU over time (profzoo.tools.sample.tables.TABLE)",
}
