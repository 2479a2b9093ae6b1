"""The reasons in docs/decisions.md that can be run still hold."""

import io
import tomllib
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from documented import ROOT
from packaging.requirements import Requirement
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from rich.console import Console
from torch.utils.benchmark import Timer

from latticework.experiments.config.annotations import fits, words
from latticework.samplers.base import Sampler

DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
PART = {"_target_": "latticework.samplers.gwg.GWG"}


def takes(hint: object, value: object) -> bool:
    """Whether pydantic takes the value, in strict mode."""
    anything = ConfigDict(arbitrary_types_allowed=True)
    try:
        TypeAdapter(hint, config=anything).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("hint", "value", "ours"),
    [
        (Literal[1, 2], True, False),
        (Literal[1, 2], 1.0, False),
        (int, 2**70, False),
        (Sampler, PART, True),
    ],
)
def test_pydantic_decides_otherwise_where_the_page_says(hint, value, ours):
    assert fits(value, hint) == ours
    assert takes(hint, value) != ours


def test_pydantic_agrees_on_plain_values():
    for value, fitting in ((3, True), ("3", False), (True, False), (0.5, False)):
        assert takes(int, value) == fits(value, int) == fitting


def test_pydantic_has_no_adapter_for_a_class_with_a_tensor_and_names_its_validators():
    @dataclass
    class Rows:
        x: torch.Tensor

    with pytest.raises(PydanticSchemaGenerationError):
        TypeAdapter(Rows)
    with pytest.raises(ValidationError, match=r"nullable\[int\]"):
        TypeAdapter(int | None).validate_python("a", strict=True)
    assert words(int | None) == "an integer or null"


def test_the_timer_runs_its_statement_more_often_than_asked():
    calls = []
    Timer("step()", globals={"step": lambda: calls.append(1)}).timeit(1)
    assert len(calls) > 1


def test_richs_export_has_lines_of_fixed_width_and_no_headings():
    console = Console(record=True, file=io.StringIO(), width=20)
    console.print("[bold]A heading", "word " * 8)
    page = console.export_html()
    assert "<pre" in page
    assert "<h" not in page.replace("<html", "").replace("<head", "")
    assert len(page.partition("<pre")[2].splitlines()) >= 3


def test_each_library_that_was_taken_is_a_dependency():
    page = (ROOT / "docs" / "decisions.md").read_text()
    taken, _, left = page.partition("## Not taken")
    named = {Requirement(text).name for text in DEPENDENCIES}
    for name in ("hydra-core", "optuna", "arviz", "numba", "torchvision", "rich", "safetensors"):
        assert name.partition("-")[0] in taken.lower()
        assert name in named
    for name in ("pooch", "hydra-ray-launcher", "hydra-optuna-sweeper"):
        assert name in page
        assert name not in named
    assert "pooch" in left
