"""Lists the suppliers of tracks below the typical step, in the order in which they are drawn."""

from collections.abc import Sequence

from profzoo.tools.nsys.gpu_tracks import supply_gpu_memory, supply_gpu_metrics
from profzoo.tools.nsys.tracks import Supplier

# A further supplier is one line here.
SUPPLIERS: Sequence[Supplier] = (
    supply_gpu_metrics,
    supply_gpu_memory,
)
