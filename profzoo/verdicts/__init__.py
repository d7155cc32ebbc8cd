"""What holds a cell back, by rules with a metric, a threshold, and a next step."""

# How an expected gain is known: by what-if simulation, or by Amdahl's law. They stand here because the terminal needs
# them before any table is read.
SIMULATED, AMDAHL = "replay", "Amdahl"
