# Needs: traces of torch.profiler. Makes: what only some traces hold, such as memory over time, as CSV and figures.


rule export_torch_memory:
    """Export allocated and reserved memory over the traced steps, from a trace that recorded memory (torch.memory)."""
    input:
        code("workflow/scripts/export_torch_memory.py"),
        trace=TORCH_FILES.require_memory(),
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
    output:
        csv="<results>/{model}/{phase}.torch-memory.csv",
    log:
        "<logs>/{model}/{phase}.torch-memory.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_torch_memory.py"


rule draw_torch_memory:
    """Draw a cell's memory over the traced steps."""
    input:
        code("workflow/scripts/draw_torch_memory.py"),
        csv="<results>/{model}/{phase}.torch-memory.csv",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
    output:
        svg="<results>/{model}/{phase}.torch-memory.svg",
        png="<results>/{model}/{phase}.torch-memory.png",
        pdf="<results>/{model}/{phase}.torch-memory.pdf",
    log:
        "<logs>/{model}/{phase}.torch-memory.figure.log",
    group:
        "report"
    resources:
        **light(),
    params:
        dpi=config["figures"]["dpi"],
    script:
        "../scripts/draw_torch_memory.py"


rule export_torch_cycles:
    """Export all cycles of the profiler's schedule, and how they differ (torch.repeat)."""
    input:
        code("workflow/scripts/export_torch_cycles.py"),
        operators="<results>/{model}/{phase}.torch-operators.csv",
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
        more=TORCH_FILES.require_cycles(),
    output:
        csv="<results>/{model}/{phase}.torch.cycles.csv",
        differences="<results>/{model}/{phase}.torch.cycle-differences.csv",
    log:
        "<logs>/{model}/{phase}.torch.cycles.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_torch_cycles.py"


rule export_torch_snapshot:
    """Export the snapshot of the GPU's allocator, and the blocks at its peak with the lines that allocated them."""
    input:
        code("workflow/scripts/export_torch_snapshot.py"),
        more=TORCH_FILES.require_snapshot(),
    output:
        csv="<results>/{model}/{phase}.torch-snapshot.csv",
        pickle="<results>/{model}/{phase}.torch-snapshot.pickle",
    log:
        "<logs>/{model}/{phase}.torch-snapshot.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_torch_snapshot.py"


rule export_tensorboard:
    """Lay the traces of all cycles out for TensorBoard's profiler plugin."""
    input:
        code("workflow/scripts/export_tensorboard.py"),
        trace="<results>/{model}/{phase}.trace.json.gz",
        sidecar="<results>/{model}/{phase}.trace.json.gz.json",
        more=TORCH_FILES.list_earlier_cycles,
    output:
        folder=directory("<results>/{model}/{phase}.tensorboard"),
    log:
        "<logs>/{model}/{phase}.tensorboard.log",
    group:
        "export"
    resources:
        **light(),
    script:
        "../scripts/export_tensorboard.py"
