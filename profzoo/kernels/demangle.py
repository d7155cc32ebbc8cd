"""Demangles kernel names with the C++ library, as torch.profiler does."""

import ctypes
from functools import cache

LIBRARY = "libstdc++.so.6"


@cache
def _library() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    """Load the C++ library and the C library; None if one is missing."""
    try:
        own, c = ctypes.CDLL(LIBRARY), ctypes.CDLL(None)
        own.__cxa_demangle.restype = ctypes.c_void_p
        c.free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return own, c


def can_demangle() -> bool:
    """Return whether this machine has the C++ library that demangles names."""
    return _library() is not None


def demangle(name: str) -> str:
    """Return the name as in the source; a name that is not mangled stays as it is.

    >>> demangle("_ZN2at6native4copyIfEEvPT_"), demangle("sm80_xmma_gemm")
    ('void at::native::copy<float>(float*)', 'sm80_xmma_gemm')
    """
    libraries = _library()
    # The library takes any other name for a type: "i" becomes "int".
    if libraries is None or not name.startswith("_Z"):
        return name
    own, c = libraries
    status = ctypes.c_int()
    text = own.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode()
    finally:
        c.free(text)
