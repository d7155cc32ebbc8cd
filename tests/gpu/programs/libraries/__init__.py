"""Networks of other libraries, as their users build them: trials of settings are run on them (trial_libraries.py)."""
