"""Plans: the settings that are possible for a cell, alone and together, with their expected gains, the best first."""
