"""SVGs that become part of a page: nothing in them is run or loaded, and whatever gets in yet is held by the policy."""

import re
from pathlib import Path

import pytest

from profzoo.cli import serve
from profzoo.errors import DataError
from profzoo.report import page
from profzoo.report.page import sanitise_svg
from tests import browser, devtools, slow, whole_zoo
from tests.unit.test_serve import running

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{}</svg>'
HTML = 'xmlns="http://www.w3.org/1999/xhtml"'


@pytest.mark.parametrize(
    ("inside", "named"),
    [
        ("<script>alert(1)</script>", "<script>"), ("<g><SCRIPT/></g>", "<SCRIPT>"),
        ('<script href="https://evil.example/a.js"/>', "<script>"), (f"<script {HTML}>1</script>", "script>"),
        (f"<foreignObject><body {HTML}>x</body></foreignObject>", "<foreignObject>"), (f"<iframe {HTML} src='/'/>", "iframe>"),
        ('<g onclick="alert(1)"/>', 'onclick="alert(1)"'), ('<path OnLoad="alert(1)"/>', 'OnLoad="alert(1)"'),
        ('<a xlink:href="javascript:alert(1)"><text>x</text></a>', "<a>"), ('<a href="https://evil.example"/>', "<a>"),
        ('<use xlink:href="https://evil.example/a.svg#b"/>', 'href="https://evil.example/a.svg#b"'),
        ('<use href="data:image/svg+xml;base64,AA#b"/>', 'href="data:image/svg+xml'), ('<use href="javascript:1"/>', 'href="java'),
        ('<image href="https://evil.example/a.png"/>', 'href="https:'), ('<image href="//evil.example/a.png"/>', 'href="//evil'),
        ('<image href="data:image/svg+xml;base64,AA"/>', 'href="data:image/svg'), ('<image href="file:///etc/passwd"/>', 'href="file:'),
        # A page's parser of HTML takes names in letters of either case.
        ('<image HREF="https:evil.example"/>', 'HREF="https:'), ('<use Href="b.svg#c"/>', 'Href="b.svg#c"'), ('<image SRC="a.png"/>', 'SRC="a.png"'),
        ('<g style="cursor: SRC(a)"/>', 'style="cursor'), ("<g style=\"fill: image('a.png')\"/>", 'style="fill'),
        ("<g>" * 5000 + "</g>" * 5000, "elements within elements"),
        ('<image src="a.png"/>', 'src="a.png"'), ('<g style="fill: url(https://evil.example/a#b)"/>', 'style="fill: url('),
        ('<g fill="url(//evil.example/a#b)"/>', 'fill="url('), ('<g style="fill: u\\72l(x)"/>', 'style="fill: u'),
        ("<g style=\"background: image-set('a.png' 1x)\"/>", 'style="background'), ("<g filter=\"url('a.svg#b')\"/>", 'filter="url('),
        ('<style>@import "https://evil.example/a.css";</style>', "a <style>"), ("<style>main {display: none}</style>", "a <style>"),
        ("<style>*{fill: url(a)}</style>", "a <style>"), ("<style><g/></style>", "<style>"), (f"<title><b {HTML}/></title>", "<title>"),
        ('<animate attributeName="href" to="javascript:alert(1)"/>', "<animate>"), ('<set attributeName="onclick" to="1"/>', "<set>"),
        ("<g", "is not SVG (not well-formed"), ("<b:g/>", "is not SVG (unbound prefix"), ("&nope;", "is not SVG (undefined entity"),
    ],
)  # fmt: skip
def test_what_a_browser_would_run_or_load_is_refused(inside: str, named: str) -> None:
    with pytest.raises(DataError, match=r"^(holds|is not SVG)") as refused:
        sanitise_svg(SVG.format(inside))
    assert named in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "svg",
    ["", "text", "<html/>", "<svg>", '<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>', '<!DOCTYPE svg [<!ATTLIST svg onload CDATA "alert(1)">]><svg/>',
     '<svg xmlns="http://www.w3.org/1999/xhtml"/>', '<svg onload="alert(1)"/>'],
)  # fmt: skip
def test_what_is_no_svg_is_refused(svg: str) -> None:
    with pytest.raises(DataError, match=r"^(holds|is not SVG)"):
        sanitise_svg(svg)


def test_what_only_html_would_read_as_a_script_is_gone_or_text() -> None:
    svg = SVG.format("<!--><script>1</script>--><?a ><script>2</script>?><text><![CDATA[<script>3</script>]]></text>")
    assert sanitise_svg(svg) == "<svg><text>&lt;script&gt;3&lt;/script&gt;</text></svg>"


def test_what_figures_hold_stays() -> None:
    inside = ('<defs><style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style><clipPath id="p"><rect x="1" /></clipPath></defs>'
              '<g clip-path="url(#p)"><use href="#m" style="fill: #ffffff; font-family: \'DejaVu Sans\', Verdana"><title>a: 5 &lt; 6</title></use></g>'
              '<image href="data:image/png;base64,iVBORw0K+/=" style="image-rendering:pixelated" />')  # fmt: skip
    assert sanitise_svg(SVG.format(inside)) == f"<svg>{inside}</svg>"
    assert sanitise_svg(SVG.format('<use xlink:href="#m"/>')) == '<svg><use href="#m" /></svg>'
    # As a kernel may be called.
    assert sanitise_svg(SVG.format("<text>a\x01\x1bb</text>")) == "<svg><text>ab</text></svg>"


def test_a_figure_that_somebody_changed_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.svg"
    for content, why in (
        (SVG.format("<script>1</script>").encode(), "holds <script>"),
        (b"\xff", "is not SVG (it is not UTF-8)"),
        (b"", "is not SVG (no element found: line 1, column 0)"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError) as refused:
            page.read_figure(str(path))
        assert str(refused.value) == f"{path} {why}, which no figure of profzoo does: remove it, and it is drawn again"


# Each would say that it ran, or ask another site.
HOSTILE = """<script>window.ran = "script"</script><img src="none.png" onerror="window.ran = 'onerror'">
<svg onload="window.ran = 'onload'"><use href="http://evil.example/a.svg#b"/></svg><iframe src="http://evil.example/"></iframe>
<a id="hostile" href="javascript:window.ran = 'link'">x</a><img src="http://evil.example/a.png"><base href="http://evil.example/">
<form id="form" action="http://evil.example/"></form><link rel="stylesheet" href="http://evil.example/a.css">"""


@browser.needed
@pytest.mark.parametrize("by", slow.first(["serve", "file"]))
def test_nothing_runs_and_nothing_leaves_whatever_got_into_the_page(tmp_path: Path, by: str) -> None:
    html = whole_zoo.write(tmp_path, drawn=False, cells=4)
    html.write_text(html.read_text().replace("<main>", f"<main>{HOSTILE}", 1))
    (tmp_path / "figures/steps.svg").write_text(SVG.format('<script>document.documentElement.id = "ran"</script>'))
    with (
        running(served := serve.make_server(tmp_path, 0, "http://127.0.0.1:1")),
        devtools.driven(tmp_path / "of") as driver,
    ):
        shown = driver.opened(html.as_uri() if by == "file" else served.address)
        shown.value("document.getElementById('hostile').click()")
        shown.value("document.getElementById('form').submit()")
        driver.rest(0.5)
        assert shown.value("window.ran") is None and shown.value("document.baseURI.includes('evil')") is False
        # Its own script has run meanwhile.
        assert shown.value("document.documentElement.classList.contains('scripted')")
        blocked = [one["entry"]["text"] for one in shown.said("Log.entryAdded")]
        for what in ("script-src", "img-src", "style-src", "frame-src|default-src", "base-uri", "form-action"):
            assert any(re.search(what, text) for text in blocked), (what, blocked)
        reached = [one["response"]["url"] for one in shown.said("Network.responseReceived")]
        assert not any("evil" in url for url in reached)
        if by == "serve":
            html.write_text('<a href="figures/steps.svg">x</a>')
            alone = driver.opened(f"{served.address}figures/steps.svg")
            assert alone.value("document.documentElement.nodeName") == "svg" and not alone.value(
                "document.documentElement.id"
            )
