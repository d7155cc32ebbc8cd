"""Finds work in a traced step that fewer kernels could do with fewer bytes, and says what that would save.

calls       lists the operators of one step that do work, with the tensors that they read and write
values      finds which operator made what another one reads
chains      what a chain is, and the chains of a step: known patterns first, then all others
attention, losses, row_patterns, loops, updates, weights
            find known patterns
costs       computes bytes and times of a chain, now and fused
devices     bandwidth of memory and the shortest launch
joining     finds a chain's launches in the trace of nsys, whose steps can be simulated
gains       simulates the step with the chain fused
table       makes a cell's tables
"""
