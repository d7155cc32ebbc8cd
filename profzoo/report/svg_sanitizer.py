"""Sanitise an SVG for a page: refuse everything that a browser would run, load or open."""

import re
from xml.etree import ElementTree

from profzoo.errors import DataError

# Elements of figures. Others run something (script), contain any HTML (foreignObject), change attributes later
# (animate, set) or lead elsewhere (a).
ELEMENTS = frozenset((
    "svg", "g", "defs", "style", "title", "desc", "path", "use", "text", "tspan", "clipPath", "rect", "circle", "line",
    "ellipse", "polyline", "polygon", "image", "pattern", "linearGradient", "radialGradient", "stop", "mask", "marker",
    "symbol",
))  # fmt: skip
TEXTS = frozenset(("title", "desc", "style"))
NAMESPACES = {
    "": "",
    "http://www.w3.org/2000/svg": "",
    "http://www.w3.org/1999/xlink": "",
    "http://www.w3.org/XML/1998/namespace": "xml:",
}
# A reference within the figure, or an embedded bitmap.
PLACE, PICTURE = re.compile(r"#[\w.:-]+"), re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
# Parts of styles, and of attributes with the same effect, that load something, or that could hide such a part.
LOADS = re.compile(r"url\((?!#[\w.:-]+\))|(?:src|image)\(|image-set|javascript:|//|@|\\", re.IGNORECASE)
# The only permitted style sheet, because a figure's style would apply to the whole page: line joins and line caps.
STYLE = re.compile(r"\s*(\*\s*\{[\w\s:;.-]*\}\s*)*")
# Characters that XML cannot represent, for example in the name of a kernel.
UNSAYABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def sanitise_svg(svg: str) -> str:
    """Parse the SVG and write it again without metadata, so that browsers read exactly what was checked.

    Raises:
        DataError: the text is no SVG, or contains something that no figure does; the message says what.

    >>> sanitise_svg('<?xml version="1.0"?><svg><!-- a --><metadata/><g id="b"><title>1 &lt; 2</title></g></svg>')
    '<svg><g id="b"><title>1 &lt; 2</title></g></svg>'
    >>> sanitise_svg('<svg onload="alert(1)"/>')
    Traceback (most recent call last):
    profzoo.errors.DataError: holds onload="alert(1)"
    """
    if "<!ENTITY" in svg:
        raise DataError("holds <!ENTITY")
    try:
        root = ElementTree.fromstring(UNSAYABLE.sub("", svg))
    except ElementTree.ParseError as error:
        raise DataError(f"is no SVG ({error})") from None
    if _local_name(root.tag) != "svg":
        raise DataError(f"is no SVG (it is <{_local_name(root.tag)}>)")
    for element in root.iter():
        for child in [one for one in element if _local_name(one.tag) == "metadata"]:
            element.remove(child)
    for element in root.iter():
        _check_element(element)
    try:
        return ElementTree.tostring(root, encoding="unicode").strip()
    except RecursionError:
        raise DataError("holds elements within elements, hundreds deep") from None


def _check_element(element: ElementTree.Element) -> None:
    """Reduce the names of an element and its attributes to local names.

    Raises:
        DataError: the element or an attribute is not permitted.
    """
    element.tag = name = _local_name(element.tag)
    if name not in ELEMENTS or (name in TEXTS and len(element)):
        raise DataError(f"holds <{name}>")
    if name == "style" and not STYLE.fullmatch(element.text or ""):
        raise DataError("holds a <style> that sets more than stroke-linejoin and stroke-linecap")
    attributes = {_local_name(key): value for key, value in element.attrib.items()}
    for key, value in attributes.items():
        # In a page names mean the same in letters of either case, in an SVG they do not.
        runs = key.lower().startswith("on") or (key.lower() in ("href", "src") and key != "href")
        if runs or (key != "href" and LOADS.search(value)):
            raise DataError(f'holds {key}="{value[:80]}"')
        if key == "href" and not PLACE.fullmatch(value) and not (name == "image" and PICTURE.fullmatch(value)):
            raise DataError(f'holds {key}="{value[:80]}"')
    element.attrib.clear()
    element.attrib.update(attributes)


def _local_name(name: str) -> str:
    """Return the name of an element or attribute, without its namespace if figures use this namespace.

    >>> _local_name("{http://www.w3.org/1999/xlink}href"), _local_name("{http://www.w3.org/1999/xhtml}script")
    ('href', '{http://www.w3.org/1999/xhtml}script')
    """
    space, _, local = name.removeprefix("{").rpartition("}")
    return NAMESPACES[space] + local if space in NAMESPACES else name
