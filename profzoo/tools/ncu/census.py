"""Where the launches of a window come from, by which some are chosen, matched and weighed: ncu's own run, or nsys."""

from collections.abc import Mapping
from typing import Any

from profzoo.errors import ConfigError
from profzoo.tools.ncu import command as ncu

# How names of launches end that nsys traced.
OF_NSYS = ".nsys-launches.csv"
AUTO, NCU, NSYS = "auto", "ncu", "nsys"


def source(config: Mapping[str, Any]) -> str:
    """`ncu` or `nsys`, by the whole configuration.

    Where that is left open it is nsys, if both are chosen, and ncu's own run is not collected for itself.

    Raises:
        ConfigError: nsys is asked for, and does not tell what ncu will see.
    """
    asked, own = config["ncu"]["census"], config["ncu"]
    if asked == NCU:
        return NCU
    why = _unlike(own, config["nsys"])
    if asked == NSYS:
        if why:
            raise ConfigError(f"ncu.census = 'nsys', but {why}: set ncu.census to ncu")
        return NSYS
    needed = {"ncu", "nsys"} <= set(config["tool"]) and ncu.planned(own, own["set"])
    return NSYS if needed and not why else NCU


def _unlike(own: Mapping[str, Any], nsys: Mapping[str, Any]) -> str:
    """Why nsys traces other launches than ncu would profile; empty where it does not."""
    for key, usual in (("devices", []), ("target_processes", "all"), ("target_processes_filter", None), ("extra", [])):
        if own[key] != usual:
            return f"ncu.{key} may leave out launches that nsys traces"
    for trace in ("cuda", "nvtx"):
        if trace not in nsys["traces"]:
            return f"nsys.traces lacks {trace}, without which there are no launches of steps"
    return ""


def csv(own: Mapping[str, Any]) -> str:
    """The file of a cell's launches, by the configuration's `ncu`, after the phase."""
    return OF_NSYS if own["census"] == NSYS else f".ncu.{ncu.CENSUS}.csv"


def report_sidecar(own: Mapping[str, Any]) -> str:
    """The sidecar of the report that they come from, likewise."""
    return ".nsys-rep.json" if own["census"] == NSYS else f".{ncu.CENSUS}.ncu-rep.json"
