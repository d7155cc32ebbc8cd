"""Work that arithmetic knows, counted by ncu's section set `roofline` through snakemake itself."""

import pandas as pd
import pytest

from profzoo.tools.ncu import estimates
from tests.gpu import products
from tests.gpu.running import run_snakemake


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The quantities of every launch configuration of the known work."""
    folder = tmp_path_factory.mktemp("results")
    settings = ["models={products: {module: tests.gpu.products}}", f"pathvars={{results: {folder}}}"]
    target = f"{folder}/products/inference.ncu.roofline.csv"
    run_snakemake(target, "--config", *settings)
    table = pd.read_csv(target)
    return pd.concat([table[["function", "kernel"]], estimates.derive_quantities(table)], axis=1)


@pytest.mark.parametrize("quantity", ["fp32_flop", "tensor_tf32_flop", "tensor_bf16_flop", "tensor_fp16_flop"])
def test_operations_of_a_product(counted: pd.DataFrame, quantity: str) -> None:
    print(counted.to_string())
    assert counted[quantity].max() == pytest.approx(products.FLOPS, rel=0.02)


def test_bytes_of_a_copy(counted: pd.DataFrame) -> None:
    copy = counted[counted["function"].str.contains("CatArray")]
    assert len(copy) == 1
    # Read once and written once.
    assert copy["dram_bytes"].iloc[0] == pytest.approx(2 * products.COPIED, rel=0.02)
