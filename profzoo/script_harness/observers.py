"""Lets a session see what a script does, without a change to the script.

Functions of torch are wrapped when torch has just been imported, so that names that the script imports from it are
wrapped already.
"""

from profzoo.script_harness import call_observers, optimizer_observers
from profzoo.script_harness.network_observer import NetworkWatcher
from profzoo.script_harness.session import Session
from profzoo.script_harness.step_finder import RANGE


def watch_all(session: Session) -> None:
    """Have a session told of everything that makes up a step."""
    optimizer_observers.OptimizerWatcher(session).watch()
    optimizer_observers.watch_scalers(session)
    NetworkWatcher(session).watch()
    call_observers.watch_backward(session)
    call_observers.watch_losses(session)
    call_observers.watch_loaders(session)
    call_observers.watch_transfers(session)
    call_observers.watch_autocast(session)
    if session.finder.kind == RANGE:
        # Here, as nobody else takes the wrappers of NVTX.
        from profzoo.script_harness import range_observers

        range_observers.watch_ranges(session)
