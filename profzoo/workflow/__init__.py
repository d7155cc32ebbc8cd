"""Functions that the rules in workflow/rules/ call: inputs of jobs, texts of jobs, and actions around a run.

The .smk files contain rules only. Every function that a rule needs is here, typed and tested. No job runs this code.
"""
