"""Lists the suppliers of tracks below the typical step, in the order in which they are drawn."""

from collections.abc import Sequence

from profzoo.tables.stream_tracks import supply_stream_tracks
from profzoo.tools.nsys.gpu_tracks import supply_gpu_memory, supply_gpu_metrics
from profzoo.tools.nsys.host_tracks import supply_os_calls, supply_samples, supply_thread_states
from profzoo.tools.nsys.tracks import Supplier

# A further supplier is one line here.
SUPPLIERS: Sequence[Supplier] = (
    supply_stream_tracks,
    supply_gpu_metrics,
    supply_gpu_memory,
    supply_thread_states,
    supply_samples,
    supply_os_calls,
)
