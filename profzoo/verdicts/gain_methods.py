"""Names how an expected gain is known: by what-if simulation, or by Amdahl's law."""

SIMULATED, AMDAHL = "replay", "Amdahl"
