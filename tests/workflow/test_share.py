"""`snakemake share` packs what is there at that moment, by itself and without collecting anything."""

import tarfile

from tests.workflow.project import Project, said

TOKEN = "hx92kQ7fLw03mZpT5vBc"


def test_what_is_there_is_packed_whenever_it_is_asked_for(fresh: Project) -> None:
    archive = fresh.root / "results" / "share.tar.gz"
    assert fresh.snakemake("share", ok=False).returncode and not archive.exists()
    (fresh.root / "results" / "tables").mkdir(parents=True)
    for number, name in enumerate(("cells", "kernels"), start=1):
        fresh.write(f"results/tables/{name}.csv", "model\nlstm\n")
        run = fresh.snakemake("share")
        assert f"results/share.tar.gz: {number + 1} files" in "".join(said(run))
        with tarfile.open(archive) as tar:
            assert len(tar.getnames()) == number + 2
    fresh.write("results/tables/cells.csv", f"model\n{TOKEN}\n")
    fresh.variables = {"SOME_TOKEN": TOKEN}
    refused = fresh.snakemake("share", ok=False)
    assert refused.returncode and TOKEN not in refused.stdout + refused.stderr and not archive.exists()
    assert "results/tables/cells.csv holds the value of SOME_TOKEN" in "".join(said(refused))
    fresh.snakemake("share", "--config", "environment=[SOME_TOKEN]")
    fresh.snakemake("clean")
    assert fresh.files() == {"tables/cells.csv", "tables/kernels.csv"}
