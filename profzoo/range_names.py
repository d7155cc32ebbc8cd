"""Names of the NVTX domain, the window and the ranges, for those who open them and those who look for them."""

DOMAIN = "profzoo"
WINDOW = "window"
STEP = "step"
PARTS = ("data", "transfer", "forward", "loss", "backward", "optimizer")
