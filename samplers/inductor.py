"""Compilation by PyTorch's Inductor: its options, its cache folder and its C++ compiler."""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latticework.models.matmul import MIN_MULTIPLICATIONS, mkl_is_slow, onednn
from latticework.samplers.compiled.folders import cache_root, fault_of

log = logging.getLogger(__name__)
# A loop over at most so many multiplications takes less time than the call of MKL.
MAX_LOOP_MULTIPLICATIONS = 2**14
INDUCTOR_OPTIONS = {
    "cpp.threads": 1,
    "compile_threads": 1,  # one file needs no pool of processes
    # Small tensors inside a block are on the stack: to allocate them takes longer than the steps.
    "cpp_wrapper": True,
    "aot_inductor.allow_stack_allocation": True,
}
# An operation that Inductor calls and does not look into.
_library = torch.library.Library("latticework", "FRAGMENT")
_library.define("product(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_library.impl("product", onednn, "CPU")


@torch.library.register_fake("latticework::product", lib=_library)
def _shape_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(len(x), weight.shape[1])


def _product(
    bias: Tensor | None, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """`beta` bias + `alpha` x W by the fastest code; NotImplemented where that is Inductor's call.

    Small products are loops that Inductor fuses. Large ones are left to oneDNN where MKL is slow:
    Inductor itself gives it constant weights only.
    """
    multiplications = x.numel() * weight.shape[-1]
    if multiplications <= MAX_LOOP_MULTIPLICATIONS:
        product = (x.unsqueeze(-1) * weight.unsqueeze(-3)).sum(-2)
        product = product if alpha == 1 else alpha * product
        if bias is None:
            return product
        return product + (bias if beta == 1 else beta * bias)
    is_large = multiplications >= MIN_MULTIPLICATIONS and x.dtype == torch.float32
    is_affine = x.dim() == 2 and (bias is None or bias.dim() == 1) and alpha == beta == 1
    if is_large and is_affine and mkl_is_slow():
        return torch.ops.latticework.product(x, weight, bias)
    return NotImplemented


PRODUCTS: dict[Any, Callable] = {
    torch.ops.aten.mm.default: partial(_product, None),
    torch.ops.aten.bmm.default: partial(_product, None),
    torch.ops.aten.addmm.default: _product,
}


class NotFusedError(TypeError):
    """A step cannot be compiled; the message says why."""


class NoCompilerError(NotFusedError):
    """There is no C++ compiler."""


@cache
def use_private_folder() -> None:
    """Let PyTorch keep what it compiles below our cache folder, where no other user can write.

    By itself it loads shared objects and headers from a folder of the temporary directory that
    anybody can make beforehand. A folder that the user has chosen is kept if it is private too.
    Where no folder is, each process compiles in one of its own. Raises NotFusedError without any.
    """
    variable, shared = "TORCHINDUCTOR_CACHE_DIR", Path(tempfile.gettempdir(), "torchinductor_")
    chosen = os.environ.get(variable, "")
    if chosen.startswith(str(shared)):  # PyTorch's own choice, which it has written there
        chosen = ""
    try:
        folder = Path(chosen) if chosen else cache_root() / "inductor"
        why = fault_of(folder)
    except RuntimeError as error:  # there is no home folder
        why = str(error)
    if why:
        try:
            folder = Path(tempfile.mkdtemp(prefix="latticework-"))
        except OSError as error:
            raise NotFusedError(
                f"there is no folder for compiled code ({why}; {error}): set LATTICEWORK_CACHE to "
                "a folder of yours that can be written"
            ) from error
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        log.warning(
            "fused kernels are not kept, so each process compiles them again: %s; set "
            "LATTICEWORK_CACHE to a folder of yours that can be written",
            why,
        )
    os.environ[variable] = str(folder)
    from torch._inductor import codecache

    # PyTorch names this folder when it is imported, and not by the variable.
    codecache._HEADER_DIR = str(folder / "precompiled_headers")
    codecache._HEADER_LOCK_DIR = str(folder / "precompiled_headers" / "locks")


def require_compiler() -> None:
    """Raise NoCompilerError unless PyTorch finds a C++ compiler, also where a cache needs none."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise NoCompilerError(
            "there is no C++ compiler; with one, these steps would be some 10 to 30 times as "
            "fast: install g++ or clang, or set CXX"
        ) from error
