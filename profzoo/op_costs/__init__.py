"""Computes the minimum cost of operators from their input shapes: floating-point operations, and bytes moved.

Needed are additions, multiplications, divisions and elementary functions, one each; a fused multiply-add is two, as in
counters. Products and convolutions are counted as torch's FlopCounterMode does, padding included. Comparing, choosing
and copying need none, but bytes. Bytes are those of each input read once and each result written once.
"""
