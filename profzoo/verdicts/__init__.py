"""What holds a cell back, by rules with a metric, a threshold, and a next step."""

# These stand here because the terminal needs them before any table is read.

# How an expected gain is known: by what-if simulation, or by Amdahl's law.
SIMULATED, AMDAHL = "replay", "Amdahl"
# Why a setting is not possible that nobody can apply to a script from outside.
ONLY_ITSELF = "only a script itself can capture its step in a CUDA graph (torch.cuda.graph)"
