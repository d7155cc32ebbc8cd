"""Finds the census, the list of a window's launches used to choose, match and weight profiled launches: by ncu or
nsys."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from profzoo.errors import ConfigError
from profzoo.io import sidecars as fact
from profzoo.tools.ncu import command as ncu

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config
    from profzoo.cell.tool_types import NcuSettings, NsysSettings

# How names of launches end that nsys traced.
OF_NSYS = ".nsys-launches.csv"
# And how what says whether it told them.
TOLD = f"{OF_NSYS}.json"
AUTO: Final = "auto"
NCU: Final = "ncu"
NSYS: Final = "nsys"
NEEDS: fact.Needs = {"told": fact.FLAG, "why?": fact.TEXT}


def census_source(config: "Config") -> Literal["auto", "ncu", "nsys"]:
    """Return which tool counts the launches of cells, by the whole configuration.

    `auto` stands for nsys in each cell whose trace tells the launches, and for ncu in the others. It is returned where
    the setting `ncu.census` leaves the tool open, both tools are chosen, and ncu's own run is not collected for itself.

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
    needed = {"ncu", "nsys"} <= set(config["tool"]) and ncu.needs_plan(own, own["set"])
    return AUTO if needed and not why else NCU


def _unlike(own: "NcuSettings", nsys: "NsysSettings") -> str:
    """Explain why nsys traces other launches than ncu would profile; empty if both see the same launches."""
    limiting = {
        "devices": own["devices"] != [],
        "target_processes": own["target_processes"] != "all",
        "target_processes_filter": own["target_processes_filter"] is not None,
        "extra": own["extra"] != [],
    }
    for key, limits in limiting.items():
        if limits:
            return f"ncu.{key} may leave out launches that nsys traces"
    for trace in ("cuda", "nvtx"):
        if trace not in nsys["traces"]:
            return f"nsys.traces does not contain {trace}, without which nsys sees no launches of steps"
    return ""


def read_untold_reason(sidecar: str | Path) -> str | None:
    """Explain why a trace does not list the launches of a cell, from the sidecar of its launches; None if it does.

    Tables made before there was a sidecar are of traces that do.
    """
    if not Path(sidecar).exists():
        return None
    said = fact.read_sidecar(sidecar, NEEDS)
    return None if said["told"] else said.get("why", "its trace does not show them")


def census_csv_name(by_ncu: bool) -> str:
    """Return the CSV name of a cell's launches, after the phase; by_ncu: whether ncu counts the launches itself."""
    return f".ncu.{ncu.CENSUS}.csv" if by_ncu else OF_NSYS


def census_sidecar_name(by_ncu: bool) -> str:
    """Return the sidecar name of the report from which the launches come; by_ncu: as in `csv`."""
    return f".{ncu.CENSUS}.ncu-rep.json" if by_ncu else ".nsys-rep.json"
