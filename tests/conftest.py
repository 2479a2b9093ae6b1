"""Tests ask no hub for a checkpoint: set before `huggingface_hub`, which reads it, is imported."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_configure() -> None:
    """Collect no garbage while modules are imported: they stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of later collections, each of which would visit all of them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def figures_closed() -> Iterator[None]:
    """Close the figures that a test leaves open; Matplotlib warns at 20."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
