"""Lists the suppliers of tracks below the typical step, in the order in which they are drawn."""

from collections.abc import Sequence

from profzoo.tools.nsys.tracks import Supplier

# A further supplier is one line here.
SUPPLIERS: Sequence[Supplier] = ()
