"""Records what files were made of and what they contained, to tell up-to-date files from outdated or damaged ones.

A job that collects leaves its record in the sidecar. Any other job leaves one in the hidden folder `.records` beside
its outputs.
"""
