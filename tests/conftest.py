"""Tests ask no hub for a checkpoint: set before `huggingface_hub`, which reads it, is imported."""

import gc
import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import pytest
from omegaconf import _utils

if TYPE_CHECKING:
    from latticework.experiments.papers.report_content import Report

os.environ["HF_HUB_OFFLINE"] = "1"
# Processes that a test starts import this checkout; another one may be installed.
ROOT = Path(__file__).resolve().parent.parent
PATHS = (ROOT / "src", ROOT, os.environ.get("PYTHONPATH", ""))
os.environ["PYTHONPATH"] = os.pathsep.join(str(path) for path in PATHS if str(path))
Loader = _utils.get_yaml_loader()


class ParsedOnce(Loader):
    """Parses each text once. Hydra reads some 20 files of YAML for each configuration."""

    known: ClassVar[dict[str, Any]] = {}

    def __init__(self, stream: IO[str] | str) -> None:
        self.text = stream if isinstance(stream, str) else stream.read()
        super().__init__(self.text)

    def get_single_data(self) -> Any:
        """Plain values, which OmegaConf copies."""
        if self.text not in self.known:
            self.known[self.text] = super().get_single_data()
        return self.known[self.text]


def pytest_configure() -> None:
    """Parse each YAML text once; collect no garbage while modules are imported: they stay."""
    gc.disable()
    _utils.get_yaml_loader = lambda: ParsedOnce


def pytest_collection_finish() -> None:
    """Leave modules and tests out of later collections, each of which would visit all of them."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the texts of tests/golden anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a text with the one that is kept under the test's name in `golden/`.

    `pytest --golden` writes it anew: read what it changes before you commit it.
    """
    file = Path(__file__).parent / "golden" / f"{request.path.stem}.txt"
    head, sections = f"=== {request.node.name}\n", {}
    for part in file.read_text().split("\n=== ") if file.exists() else ():
        name, _, text = part.removeprefix("=== ").partition("\n")
        sections[f"=== {name}\n"] = text.strip("\n")

    def compare(text: str) -> None:
        lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        if request.config.getoption("golden"):
            sections[head] = lines
            file.write_text("\n\n".join(map("".join, sections.items())) + "\n")
        assert lines == sections.get(head)

    return compare


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is compiled."""
    from command import compile_nothing

    compile_nothing(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of one finished run of `command.SMALL`, not to be written to."""
    from command import SMALL, command_line

    outputs = tmp_path_factory.mktemp("finished")
    assert command_line(*SMALL, outputs=outputs) == 0
    return outputs


@pytest.fixture
def outputs(finished: Path, tmp_path: Path) -> Path:
    """A copy of them, to be written to."""
    return shutil.copytree(finished, tmp_path / "outputs")


@pytest.fixture(scope="session")
def small_outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments in full, a part of one, of which a run failed and another was stopped."""
    from command import command_line
    from report_parts import PART, SMOKE

    folder = tmp_path_factory.mktemp("outputs")
    for name in ("stochastic_proposal", "rates_sec3"):
        assert command_line(f"experiment={name}", *SMOKE, outputs=folder) == 0
    assert command_line(*PART, "sampler=gibbs,dmala", outputs=folder) == 0
    for sampler, error in (("gwg", "ValueError: too <large>\n\nTraceback"), ("dula", None)):
        run = folder / "ising_sampling" / "smoke" / f"sampler={sampler},seed=0"
        (run / ".hydra").mkdir(parents=True)
        if error:
            (run / "error.txt").write_text(error)
    return folder


@pytest.fixture(scope="session")
def report(small_outputs: Path) -> "Report":
    """The report of `small_outputs`; its figures are kept where the command looks for them."""
    from report_parts import NOWHERE

    from latticework.experiments.papers.report_builder import build_report

    return build_report(small_outputs, bundles=NOWHERE, keep=small_outputs / "report" / "kept")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data root and cache, and no network."""
    from latticework.data import files

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.delenv("LATTICEWORK_DATA", raising=False)
    monkeypatch.setattr(files, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def figures_closed() -> Iterator[None]:
    """Close the figures that a test leaves open; Matplotlib warns at 20."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def threads_restored() -> Iterator[None]:
    """Undo a test's number of threads, also one that it only pretends to have.

    Code that sets the number for a while restores what `get_num_threads` said, which tests replace.
    Threads that wait for a busy core then make all later tests many times slower.
    """
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    yield
    if before is not None and sys.modules["torch"].get_num_threads() != before:
        sys.modules["torch"].set_num_threads(before)


@pytest.fixture
def plain_tape(monkeypatch):
    """The generator itself fills the tapes of fused steps, so eager steps read the same numbers."""
    import torch

    def fill(out, rng):
        torch.from_numpy(out).uniform_(generator=rng)

    monkeypatch.setattr("latticework.samplers.compiled.philox.step_keys", lambda blocks, rng: rng)
    monkeypatch.setattr("latticework.samplers.compiled.philox.fill_units", fill)


@pytest.fixture
def uncompiled(monkeypatch):
    """Blocks of a step that PyTorch interprets."""
    monkeypatch.setattr("latticework.samplers.fused_block.BLOCK_STEPS", 1)
    monkeypatch.setattr("torch._inductor.compile", lambda graph, given, options: graph)


@pytest.fixture
def no_grad() -> Iterator[None]:
    """Record no gradients, as the loops of chains do not."""
    import torch

    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def short_blocks() -> Iterator[None]:
    """Blocks of two fused steps, which compile sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("latticework.samplers.fused_block.BLOCK_STEPS", 2)
        yield


@pytest.fixture
def interpreted(uncompiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two fused steps that PyTorch interprets, for what is done with them."""
    monkeypatch.setattr("latticework.samplers.fused_block.BLOCK_STEPS", 2)
