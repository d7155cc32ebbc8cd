"""Computes the minimum cost of operators from their input shapes: floating-point operations, and bytes moved.

Additions, multiplications, divisions and elementary functions count as one operation each. A fused multiply-add counts
as two, as in hardware counters. Matrix products and convolutions are counted as torch's FlopCounterMode counts them,
padding included. Comparing, selecting and copying cost bytes but no operations. Bytes are counted as if each input were
read once and each result written once; an expanded dimension, whose stride is 0, is stored once.
"""
