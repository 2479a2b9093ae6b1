"""Importing `transformers` beside a PyTorch that torchvision has no build for.

transformers' models import torchvision, and torchvision registers shapes for its operators `nms`
and `qnms` while it is imported. Beside a PyTorch without CUDA, a torchvision built for CUDA cannot
load its compiled operators, and its import then fails because the two names do not exist. Declaring
their signatures, without an implementation, is enough: nothing here detects objects in images.

Where torchvision imports, or is not installed, nothing is declared.
"""

import importlib
import sys

import torch

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_libraries: list[torch.library.Library] = []  # a declaration ends with its Library


def ensure_importable() -> bool:
    """Import torchvision, declaring the operators it misses; whether that was necessary.

    Raises whatever else is wrong with torchvision; a torchvision that is not installed is not.
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
        del sys.modules[name]  # what the failed import left half made
    importlib.import_module("torchvision")
    return True
