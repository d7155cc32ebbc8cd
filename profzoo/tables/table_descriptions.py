"""Describes the tables across the zoo, `results/tables/NAME.csv`: what each holds, and what one of its rows is.

The rules read this before a run starts, so it imports nothing; zoo_tables.py declares the columns.
"""

from collections.abc import Mapping

# By the table's name: what it holds, and what a row is.
DESCRIPTIONS: Mapping[str, tuple[str, str]] = {
    "cells": ("The unprofiled step of every cell, with what it ran and what tools add.", "a cell"),
    "latency": ("Percentiles of the time of a step, with intervals.", "a cell and percentile"),
    "tokens": (
        "Where the time of generated tokens goes: bytes that they need, kernels, gaps, waits.",
        "a cell that generates, range, module and kind of launches",
    ),
    "activity": ("Time by kernel (on a CPU: operator) as each tool saw it.", "a cell, tool, range and kernel"),
    "kernels": ("Time by nsys and counters by ncu.", "a cell, launch configuration and range"),
    "ranges": (
        "Time by part of the step, and by range that the program opened itself.",
        "a cell, tool and part of the step or range",
    ),
    "repetition": ("How the launches of steps differ, and what that leaves unknown.", "a cell whose steps differ"),
    "steps": ("Where a step's time goes: GPU at work, idle time by cause, host.", "a cell and process"),
    "agreement": ("Launches and GPU time as each tool saw them, and its slowdown.", "a cell"),
    "coverage": ("How much of what nsys traced ncu profiled.", "a cell and section set"),
    "ranks": ("What each process of a cell on several GPUs did.", "a cell on several GPUs and process"),
    "collectives": (
        "Collective operations of cells on several GPUs: times, and bandwidth against that of the link.",
        "a cell, collective operation, type and size",
    ),
    "skew": (
        "Which process of a cell on several GPUs comes late to collective operations, and in which part of its step.",
        "a cell, process, step and part of the step",
    ),
    "layers": ("Time by module and direction.", "a cell, module and direction"),
    "owners": ("How much GPU time has an owner: operator, module.", "a cell"),
    "replay": ("Predicted speedup of changes, by what-if simulation.", "a cell, process and change"),
    "fusion": ("What fewer kernels could compute: bytes, launches and time, now and fused.", "a cell and chain"),
    "host": ("What the host's time goes to.", "a cell and process"),
    "roofline": ("Counted work against measured peaks.", "a cell, class of kernels, range, or launch configuration"),
    "occupancy": ("Occupancy by ncu, what limits it, and what would change it.", "a cell and launch configuration"),
    "memory_chart": (
        "Bytes between the parts of the memory system, hit rates, and share of the peak, by ncu.",
        "a cell, class of kernels, and link",
    ),
    "pipes": ("How busy the pipes of the SMs are, by ncu.", "a cell, class of kernels, and pipe"),
    "warp_states": ("What warps wait for between two instructions, by ncu.", "a cell, class of kernels, and state"),
    "compare": ("The sides of a comparison against each other.", "a cell and candidate"),
    "compare_parts": (
        "Where the difference lies.",
        "a cell, candidate, and part of the step, range, class of kernels, layer, or kernel",
    ),
    "compare_counters": (
        "What changed in bytes, operations, hit rates and occupancy.",
        "a cell, candidate, counter, and class of kernels, layer, kernel, or kernel of a layer",
    ),
    "compare_latency": ("Percentiles of the time of a step on each side.", "a cell, side and percentile"),
    "trials": ("Settings that were tried, and what they gained.", "a cell and settings"),
    "verdicts": (
        "What holds cells, kernels and layers back, and what to do.",
        "a verdict on a cell, a kernel or a layer",
    ),
    "plans": (
        "The settings that are possible for each cell, alone and together, with their expected gains, the best first.",
        "a cell and settings",
    ),
    "waits": ("Lines of programs at which a step waits for the GPU.", "a cell, line and operation"),
}
