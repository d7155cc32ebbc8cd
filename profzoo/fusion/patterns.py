"""Lists the known patterns in the order in which they are looked for: what contains others comes first."""

from profzoo.fusion import attention, chains, loops, losses, row_patterns, updates, weights

FINDERS: tuple[chains.Finder, ...] = (
    updates.find_updates,
    loops.find_loops,
    attention.find_attention,
    losses.find_losses,
    weights.find_one_hot_products,
    weights.find_weight_casts,
    row_patterns.find_row_patterns,
)
# All patterns, by name.
PATTERNS = (
    attention.ATTENTION, losses.LOSS, row_patterns.SOFTMAX, row_patterns.LAYER_NORM, row_patterns.RMS_NORM,
    row_patterns.GELU, row_patterns.SILU, row_patterns.ROTARY, loops.EXPERTS, loops.HEADS, weights.CASTS,
    weights.ONE_HOT, updates.LOOPED, updates.FOREACH, updates.AVERAGE, updates.NORMS, chains.OTHER,
)  # fmt: skip
