"""Lists the known patterns in the order in which they are looked for: what contains others comes first."""

from collections.abc import Mapping

from profzoo.fusion import (
    attention,
    autocast_casts,
    chains,
    discarded,
    graph_products,
    loops,
    losses,
    prefixes,
    recomputed,
    repeated_calls,
    row_patterns,
    updates,
    weights,
    wide_types,
)

FINDERS: tuple[chains.Finder, ...] = (
    discarded.find_discarded,
    recomputed.find_recomputed,
    prefixes.find_repeated_prefixes,
    wide_types.find_double,
    updates.find_updates,
    loops.find_loops,
    repeated_calls.find_repeated_calls,
    attention.find_attention,
    losses.find_losses,
    weights.find_one_hot_products,
    graph_products.find_graph_products,
    weights.find_weight_casts,
    autocast_casts.find_autocast_casts,
    row_patterns.find_row_patterns,
)
# Patterns by the share of the step that a rule about chains looks at.
PATTERNS_OF_SHARE: Mapping[str, tuple[str, ...]] = {
    "discarded_gradients": (discarded.DISCARDED,),
    "recomputed": (recomputed.RECOMPUTED,),
    "prefixes": (prefixes.PREFIXES,),
    "graph_products": (graph_products.GRAPH,),
    "double_precision": (wide_types.ENTRY, wide_types.DOUBLE),
    "small_batches": (repeated_calls.BATCHES,),
    "time_steps": (repeated_calls.TIMES,),
    "autocast_casts": (autocast_casts.CASTS,),
    "attention": (attention.ATTENTION,),
    "loss": (losses.LOSS,),
    "softmax": (row_patterns.SOFTMAX,),
    "normalisation": (row_patterns.LAYER_NORM, row_patterns.RMS_NORM),
    "activation": (row_patterns.GELU, row_patterns.SILU),
    "rotary": (row_patterns.ROTARY,),
    "experts": (loops.EXPERTS,),
    "heads": (loops.HEADS,),
    "weight_casts": (weights.CASTS,),
    "one_hot": (weights.ONE_HOT,),
    "optimizer_loop": (updates.LOOPED,),
    "optimizer_foreach": (updates.FOREACH,),
    "weight_average": (updates.AVERAGE,),
    "gradient_norms": (updates.NORMS,),
    "elementwise": (chains.OTHER,),
}
