# Needs: traces of torch.profiler. Makes: what only some traces hold, such as memory over time, as CSV and figures.


rule export_torch_memory:
    """Export allocated and reserved memory over the traced steps, from a trace that recorded memory (torch.memory)."""
    input:
        code("workflow/scripts/export_torch_memory.py"),
        trace="<results>/{model}/{phase}.trace.json.gz",
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
    log:
        "<logs>/{model}/{phase}.torch-memory.figure.log",
    group:
        "report"
    resources:
        **light(),
    script:
        "../scripts/draw_torch_memory.py"
