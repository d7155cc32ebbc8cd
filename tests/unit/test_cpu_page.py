"""A page of nothing but cells on a CPU speaks of no GPU, neither as it is nor as a browser opens its cells."""

from pathlib import Path

from profzoo.report import glossary, overview
from tests import browser, cpu_page, whole_zoo


def test_what_is_of_gpus_is_found_in_a_page_of_these(tmp_path: Path) -> None:
    assert len(cpu_page.of_gpus(whole_zoo.write(tmp_path, drawn=False).read_text())) > 50
    (found,) = cpu_page.of_gpus('<p title="the GPU">nothing</p><script>launches</script><code>a/ncu.csv</code>')
    assert found.split() == ["nothing", "the", "GPU"]


def test_a_page_of_cells_on_a_cpu_has_no_words_of_gpus(tmp_path: Path) -> None:
    html = cpu_page.write(tmp_path).read_text()
    assert cpu_page.of_gpus(html) == []
    assert "Largest operators" in html and "operator-bound" in html and "Top operators" in html
    # And all that it links is there.
    for entry in (entry for entries in glossary.groups(on_cpu=True).values() for entry in entries):
        assert f'id="{entry["anchor"]}"' in html


def test_one_cell_on_a_gpu_makes_a_page_of_gpus() -> None:
    cells = cpu_page.tables()["cells"]
    assert overview.on_cpu(cells)
    cells.loc[0, "device"] = "NVIDIA H200"
    assert not overview.on_cpu(cells) and not overview.on_cpu(cells.head(0))


OPENED = """
  for (const cell of document.querySelectorAll("details.cell")) cell.open = true;
  await wait(300);
  seen.text = [...document.querySelectorAll("details.cell")].map(cell => cell.innerText).join(" ");
  seen.heads = [...document.querySelectorAll("details.cell h3")].map(head => head.textContent);
"""


@browser.needed
def test_cells_on_a_cpu_open_without_words_of_gpus(tmp_path: Path) -> None:
    seen, _ = browser.opened(cpu_page.write(tmp_path), tmp_path, OPENED)
    assert seen["failures"] == [] and "Where the CPU's time goes" in seen["heads"]
    assert cpu_page.of_gpus(f"<p>{seen['text']}</p>") == []
