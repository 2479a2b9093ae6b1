"""A wheel installs one package and works from a folder with packages of the user's own."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from workshop.changed_tests import list_project_files

ROOT = Path(__file__).resolve().parent.parent
IN_THE_WAY = ("conf", "data", "experiments", "models", "run", "samplers", "sampling", "scripts")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout, built from a copy of what git tracks."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for file in list_project_files():
        if file.parts[0] not in ("docs", "tests"):
            (source / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, source / file, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def foreign(wheel, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A user's folder with modules named as ours, and an environment with the wheel unpacked."""
    folder = tmp_path_factory.mktemp("foreign")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    for name in IN_THE_WAY:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            f"raise ImportError('this is not latticework: {name}')"
        )
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LATTICEWORK_DATA")}
    return folder, {**kept, "PYTHONPATH": str(folder / "site")}


def test_a_wheel_has_one_top_level_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"latticework"}
    assert "latticework/conf/experiment/rbm_sampling.yaml" in names
    assert "latticework/conf/sampler/dmala.yaml" in names
    assert any(name.startswith("latticework/models/mini_bert/") for name in names)
    cards = {name for name in names if name.startswith("latticework/models/references/cards/")}
    assert len(cards) == 2 * len(list((ROOT / "models/references/cards").glob("*.yaml")))
    folders = ("conf", "data", "experiments", "models", "samplers", "sampling", "scripts")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.[py][ya]*")]
    ours = {f"latticework/{f.relative_to(ROOT)}" for f in files if f.suffix in (".py", ".yaml")}
    assert len(ours) > 150
    assert {name for name in ours - set(names) if "/data/cache/" not in name} == set()
    assert not [
        name
        for name in names
        if name.startswith(("latticework/tests", "latticework/docs", "latticework/workshop"))
    ]


def test_the_library_ignores_modules_of_the_user(foreign):
    folder, env = foreign
    code = (
        "import sys, torch\n"
        "from latticework.models.base import Function\n"
        "from latticework.models.domains import Binary\n"
        "from latticework.samplers.langevin import DMALA\n"
        "import latticework\n"
        f"assert latticework.__path__[0].startswith({str(folder / 'site')!r})\n"
        "model, rng = Function(lambda x: x.sum(-1), Binary(3)), torch.Generator().manual_seed(0)\n"
        "state = DMALA(0.4).init(model.domain.uniform(5, rng), model)\n"
        "print(DMALA(0.4).step(state, model, rng)[0].x.shape)\n"
        "heavy = {'hydra', 'pandas', 'matplotlib', 'transformers', 'torchvision', 'wandb'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([5, 3])" in done.stdout


@pytest.mark.slow
def test_a_run_from_a_foreign_folder(foreign):
    folder, env = foreign
    words = ["model=ising", "sampler=gibbs", "scale=smoke", "device=cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "latticework.run", *words],
        cwd=folder, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((folder / "outputs").rglob("run.json"))) == 1
