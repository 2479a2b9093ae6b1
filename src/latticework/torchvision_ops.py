"""Makes torchvision importable beside a PyTorch that it was not built for.

torchvision registers shapes for its operators `nms` and `qnms` while it is imported. A torchvision
built for CUDA cannot load its compiled operators beside a PyTorch without CUDA. Its import then
fails because the two names do not exist, and so does that of any model of `transformers`, which
imports torchvision. Declaring the two signatures, without an implementation, is enough: nothing
here detects objects in images.

`data` and `models` call `ensure_importable()` before their first import of torchvision or
transformers. Where torchvision imports as it is, or is not installed, nothing is declared.
"""

import importlib
import sys

import torch

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_libraries: list[torch.library.Library] = []  # a declaration ends with its Library


def ensure_importable() -> bool:
    """Import torchvision, declaring its missing operators; return whether any was declared.

    Does nothing where torchvision is not installed. Any other failure of its import is raised.
    """
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        return False
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    else:
        return bool(_libraries)
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}{SIGNATURE}")
    _libraries.append(library)
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]  # left half imported by the failure
    importlib.import_module("torchvision")
    return True
