"""Records what files were made of and what they contained, to tell up-to-date files from outdated or damaged ones.

A collecting job writes its record into the sidecar. Any other job writes it into the hidden folder `.records` beside
its outputs.
"""
