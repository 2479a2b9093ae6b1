"""Products of float32 matrices on the CPU, by the faster of PyTorch's two libraries.

PyTorch calls MKL, which does not use AVX-512 on processors that Intel did not make. oneDNN, which
PyTorch calls for convolutions, does. Measured on an AMD EPYC (Zen 4) with PyTorch 2.13 and one
thread, products of 8 to 400 million multiplications by a matrix of 784 x 500 take 6 to 25 % less
time; of 5 to 10 million by matrices of 256 x 200 and 100 x 100, 5 to 10 % more.
"""

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

MIN_MULTIPLICATIONS = 1_000_000  # below, oneDNN's start costs more than it gains
MAX_SINGLE_TERMS = 4096  # terms of a sum, at most, that a library adds in single precision


def affine(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """The rows x W + b, `[rows, out]`, for x `[rows, in]`, W `[in, out]` and b `[out]`.

    They are written to `out` if it is given. Sums of more than MAX_SINGLE_TERMS terms that cancel
    may be off by units in single precision, and are computed in double precision, a part after the
    other.
    """
    if len(weight) > MAX_SINGLE_TERMS and x.dtype == torch.float32:
        total = bias.double()
        for rows, columns in zip(
            weight.split(MAX_SINGLE_TERMS), x.split(MAX_SINGLE_TERMS, 1), strict=True
        ):
            total = torch.addmm(total, columns.double(), rows.double())
        return total.to(x.dtype) if out is None else out.copy_(total)
    if use_onednn(x, weight, bias):
        result = onednn(x, weight, bias)
        return result if out is None else out.copy_(result)
    return torch.addmm(bias, x, weight, out=out)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X W + b by oneDNN, for which PyTorch has no public function. It has no derivative."""
    return torch.ops.mkldnn._linear_pointwise(x, weight.mT, bias, "none", [], "")


def use_onednn(x: Tensor, weight: Tensor, *bias: Tensor) -> bool:
    """Whether oneDNN is the faster library for X W + b, and can take these tensors."""
    if x.numel() * weight.shape[-1] < MIN_MULTIPLICATIONS or type(x) is not Tensor:
        return False  # Inductor, where `x` is traced, compiles this product for constants only
    tensors = x, weight, *bias
    derived = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    plain = all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
    return plain and not derived and mkl_is_slow()


@cache
def mkl_is_slow() -> bool:
    """Whether the processor has AVX-512 that MKL does not use, and oneDNN is there to use it."""
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and "GenuineIntel" not in _processor()
        and torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return platform.processor()
