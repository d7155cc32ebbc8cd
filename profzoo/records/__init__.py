"""Records of what files were made of, and of what they held then: what tells a right file from one that is there.

A job that collects leaves its record in the sidecar. Any other job leaves one in the hidden folder `.records` beside
its outputs.
"""
