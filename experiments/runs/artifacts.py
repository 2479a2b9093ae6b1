"""Expensive inputs that runs share: a trained model, its ground-truth samples, generated data.

An artifact is a set of tensors. It is computed once and stored under
`outputs/artifacts/<kind>-<hash>/`. The hash covers everything that determines the tensors;
`spec.json` beside them holds that specification and the checksum of their file. If several runs
need an artifact at the same time, one computes it and the others wait.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from latticework.experiments.runs import writing
from latticework.experiments.runs.run import Run
from latticework.samplers.base import Sampler

log = logging.getLogger(__name__)
FILE, CHECKSUM = "tensors.safetensors", "sha256"  # the second is a key of spec.json
PLAIN = (bool, int, float, str, tuple)


def artifact(
    run: Run, kind: str, spec: dict[str, Any], make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """The tensors that `make()` returns for `spec`, read from disk if they already exist.

    `spec` must hold everything that the result depends on, as JSON values. The run's record notes
    the artifact's name. A damaged file is moved aside with a warning, and computed again.
    """
    text = json.dumps(spec, indent=2, sort_keys=True)
    name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    folder = run.outputs / "artifacts" / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    with FileLock(folder / ".lock"):
        if file.exists() and (fault := _damage(folder)):
            aside = file.replace(file.with_name(f"{FILE}.damaged"))
            log.warning("%s is damaged (%s): moved to %s, computing it again", file, fault, aside)
        if not file.exists():
            log.info("computing the shared artifact %s", name)
            content = writing.tensors(make())
            noted = {**spec, CHECKSUM: hashlib.sha256(content).hexdigest()}
            writing.write(folder / "spec.json", json.dumps(noted, indent=2, sort_keys=True))
            writing.write(file, content)
    run.note(artifacts=[*run.notes.get("artifacts", []), name])
    return load_file(file, device=str(run.device))


def _damage(folder: Path) -> str:
    """Describe the damage of the tensors in `folder`; "" if they are intact.

    Older artifacts have no checksum: their file must be readable.
    """
    try:
        known = json.loads((folder / "spec.json").read_text()).get(CHECKSUM)
        found = hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
        load_file(folder / FILE)
    except (SafetensorError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if known in (None, found) else "its content was changed"


def fingerprint(model: nn.Module) -> str:
    """Hash a model: its classes with their plain settings, domain, parameters and buffers.

    Targets given as functions (`models.base.Function`) on the same domain have the same hash.
    """
    digest = hashlib.sha256(str(getattr(model, "domain", "")).encode())
    for name, module in model.named_modules():
        settings = {k: v for k, v in vars(module).items() if isinstance(v, PLAIN)}
        settings.pop("training")
        settings.pop("untrained", None)  # the weights themselves are hashed
        digest.update(f"{name} {type(module).__name__} {sorted(settings.items())}".encode())
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        digest.update(value.detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def spec_of(sampler: Sampler, model: nn.Module, run: Run, **settings: Any) -> dict[str, Any]:
    """The specification of what a sampler gives on a model, for the runs of the model seed."""
    kept = {"model": fingerprint(model), "sampler": repr(sampler), "seed": run.model_seed}
    return kept | settings
