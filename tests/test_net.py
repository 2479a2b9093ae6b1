"""What the committed records determine is what is committed (net.py)."""

from pathlib import Path

import net
import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables, the numbers of figures, and the ledger, made again."""
    folder = tmp_path_factory.mktemp("net") / "made"
    net.results(folder)
    return folder


def test_every_verdict_has_the_margins_that_are_committed(made):
    assert (made / "ledger.txt").read_text() == (HERE / "ledger.txt").read_text()


def test_every_number_is_the_one_that_is_committed(made):
    files = sorted(file for file in (made / "results").rglob("*") if file.is_file())
    assert len(files) > 100
    for file in files:
        name = file.relative_to(made / "results")
        assert file.read_text() == (HERE.parent / "docs" / "results" / name).read_text()
