"""What the rules in workflow/rules/ call: inputs of jobs, texts that describe jobs, and what is done around a run.

Rules say what is made of what; every function that they need is here, typed and tested. Nothing here runs in a job.
"""
