"""Published images: MNIST, USPS, Omniglot and Caltech silhouettes.

A loader reads the images upright and row by row, and binarises them (`data.grey`). Where files are
missing, scikit-learn's digits, scaled to the same size, replace them.
"""

from __future__ import annotations

import bz2
import logging
import textwrap
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np

from latticework.data.base import Dataset
from latticework.data.digits import Digits
from latticework.data.files import MissingFileError, Source, checksum, damaged_file_error
from latticework.data.grey import MODES, Grey, check_mode, hold_out
from latticework.data.published import PublishedData
from latticework.torchvision_ops import ensure_importable

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Images(PublishedData[Grey, Dataset]):
    """Base class of the loaders of published images.

    Args:
        binarize: threshold, static or dynamic. If the published images are binary, it only affects
            a substitute.
    """

    binarize: str = "threshold"

    counts: ClassVar[tuple[int, int, int]]
    size: ClassVar[int] = 28

    def __post_init__(self) -> None:
        check_mode(self.binarize)

    def prepare(self, content: Grey) -> Dataset:
        sizes = (len(content.train), len(content.valid), len(content.test))
        if sizes != self.counts:
            raise ValueError(
                f"{content.name}: expected splits of {self.counts} images, found {sizes}"
            )
        return content.to_binary(self.binarize, self.seed)

    def replace_missing(self, error: MissingFileError) -> Dataset:
        digits = Digits(
            size=self.size, binarize=self.binarize, seed=self.seed, epoch_size=self.counts[0]
        ).load()
        wanted = f"{self.name}, {MODES[self.binarize]}"
        lines = (
            f"SUBSTITUTE DATA: THIS IS NOT {self.name.upper()}",
            f"asked for:  {wanted}",
            f"used:       {digits.variant} ({len(digits.train):,} training images)",
            f"why:        {error}",
            "Do not compare results on these data with published numbers.",
            "data.strict=true makes this an error; data=digits selects the digits openly.",
        )
        log.warning("\n%s", textwrap.indent("\n".join(lines), "## "))
        return replace(digits, variant=f"{digits.variant}, in place of {wanted}", substitute=True)


_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
_SPLITS = ("train", "valid", "test")
_LAROCHELLE = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"


def _idx_source(name: str, md5: str) -> Source:
    urls = tuple(mirror + name for mirror in _MIRRORS)
    return Source(name, ("mnist/MNIST/raw", "MNIST/raw"), (md5,), urls)


def _amat_source(split: str, md5: str) -> Source:
    name = f"binarized_mnist_{split}.amat"
    return Source(name, ("static_binarized_mnist",), (md5,), (_LAROCHELLE + name,))


@dataclass(frozen=True, kw_only=True)
class MNIST(Images):
    """LeCun et al.'s digits: 50,000 / 10,000 / 10,000; the last 10,000 training images validate.

    `static` is the binarization of Larochelle and Murray (2011). It is read from its three text
    files or from one `.npz` with the same bits, eight to a byte.
    """

    name: ClassVar[str] = "mnist"
    counts: ClassVar[tuple[int, int, int]] = (50_000, 10_000, 10_000)
    sources: ClassVar[dict[str, Source]] = {
        "train": _idx_source("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        "test": _idx_source("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        "packed": Source(
            "binarized_mnist_packed.npz",
            ("static_binarized_mnist",),
            ("e0fddb4034a264df42ab19348843fcc7",),
            origin=_LAROCHELLE,
        ),
        "static train": _amat_source("train", "db28b1a6ae0fe70cbd3da91acf46e477"),
        "static valid": _amat_source("valid", "bf37822a04e94123630de6a7dfd9c9ef"),
        "static test": _amat_source("test", "14e41ae11040adba6ab8cb291eda0dd8"),
    }

    def read(self) -> Grey:
        if self.binarize == "static":
            train, valid, test = self._larochelle()
            return Grey("mnist, Larochelle's static binarization", train, valid, test, binary=True)
        train, test = (_read_idx(self.path(self.sources[split])) for split in ("train", "test"))
        return Grey(self.name, train[: self.counts[0]], train[self.counts[0] :], test)

    def _larochelle(self) -> list[np.ndarray]:
        try:
            packed = np.load(self.path(self.sources["packed"]))
            return [255 * np.unpackbits(packed[split], axis=1, count=784) for split in _SPLITS]
        except MissingFileError:
            paths = [self.path(self.sources[f"static {split}"]) for split in _SPLITS]
            # a text of "0 1 ... 0\n": every other byte is a digit
            return [255 * (np.fromfile(path, np.uint8)[::2] & 1).reshape(-1, 784) for path in paths]


def _read_idx(path: Path) -> np.ndarray:
    """Images of a gzipped IDX file, uint8 [n, pixels], read by torchvision.

    Its class `MNIST` unpacks all files, labels too, into the folder where they lie. A data root may
    be read-only and hold images alone, so only torchvision's functions are used.
    """
    ensure_importable()
    from torchvision.datasets.mnist import read_image_file  # here: torchvision takes a second
    from torchvision.datasets.utils import extract_archive

    with TemporaryDirectory() as folder:
        return read_image_file(extract_archive(str(path), folder)).flatten(1).numpy()


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
_USPS_RECONSTRUCTED = "87922cc43ed42d3d18caceec739190db"


@dataclass(frozen=True, kw_only=True)
class USPS(Images):
    """Hull's 16x16 digits in LIBSVM's text format: 6,291 / 1,000 / 2,007.

    torchvision's `USPS` truncates grey values; here they are rounded. Validation images are drawn
    at random from the 7,291 training images. A reconstruction of the training file is accepted too,
    in which a few pixels may be off by one grey level. The variant then says so.
    """

    name: ClassVar[str] = "usps"
    counts: ClassVar[tuple[int, int, int]] = (6_291, 1_000, 2_007)
    size: ClassVar[int] = 16
    sources: ClassVar[dict[str, Source]] = {
        "train": Source(
            "usps.bz2",
            ("usps", "."),
            ("ec16c51db3855ca6c91edd34d0e9b197", _USPS_RECONSTRUCTED),
            (_LIBSVM + "usps.bz2",),
        ),
        "test": Source(
            "usps.t.bz2",
            ("usps", "."),
            ("8ea070ee2aca1ac39742fdd1ef5ed118",),
            (_LIBSVM + "usps.t.bz2",),
        ),
    }

    def read(self) -> Grey:
        paths = [self.path(self.sources[split]) for split in ("train", "test")]
        sums = [checksum(path) for path in paths]
        train, test = map(_read_libsvm, paths, sums)
        reconstructed = sums[0] == _USPS_RECONSTRUCTED
        name = f"{self.name} (reconstructed training file)" if reconstructed else self.name
        return Grey(name, *hold_out(train, self.counts[1], self.seed), test)


@lru_cache(maxsize=2)
def _read_libsvm(path: Path, md5: str) -> np.ndarray:
    """Grey images from lines of "label 1:value ... 256:value", all values given, in [-1, 1].

    Cached, because the runs of a sweep read the same files, and unpacking takes seconds. `md5` is
    that of the file, so another file at the same path is read.
    """
    with bz2.open(path) as file:
        numbers = np.fromstring(file.read().replace(b":", b" "), dtype=np.float32, sep=" ")
    values = numbers.reshape(-1, 1 + 2 * 256)[:, 2::2]
    grey = np.rint((values + 1) * 127.5).astype(np.uint8)
    grey.flags.writeable = False
    return grey


@dataclass(frozen=True, kw_only=True)
class Omniglot(Images):
    """Burda et al.'s (2016) 28x28 Omniglot, `chardata.mat`: 23,000 / 1,345 / 8,070.

    Validation images are drawn at random from the 24,345 training images.
    """

    binarize: str = "dynamic"

    name: ClassVar[str] = "omniglot"
    counts: ClassVar[tuple[int, int, int]] = (23_000, 1_345, 8_070)
    source: ClassVar[Source] = Source(  # its publishers give no checksum
        "chardata.mat",
        ("omniglot", "OMNIGLOT"),
        urls=("https://github.com/yburda/iwae/raw/master/datasets/OMNIGLOT/chardata.mat",),
    )

    def read(self) -> Grey:
        path = self.path(self.source)
        from scipy.io import loadmat  # here: only two loaders need it

        try:
            content = loadmat(path)
            images = [
                np.rint(255 * content[key].T).astype(np.uint8) for key in ("data", "testdata")
            ]
            train, test = (_transpose_images(rows) for rows in images)
        except Exception as error:  # a damaged file raises errors of many kinds
            raise damaged_file_error(path, self.source, f"it cannot be read ({error!r})") from error
        return Grey(self.name, *hold_out(train, self.counts[1], self.seed), test)


@dataclass(frozen=True, kw_only=True)
class OmniglotDerived(Images):
    """All 32,460 Omniglot drawings resized from 105x105 by area mean: 23,000 / 1,345 / 8,115.

    This is not the papers' file. As there, the first 15 drawings of each character are for training
    (validation images are drawn from them at random) and the last 5 for testing.
    """

    binarize: str = "dynamic"

    name: ClassVar[str] = "omniglot_derived"
    counts: ClassVar[tuple[int, int, int]] = (23_000, 1_345, 8_115)
    source: ClassVar[Source] = Source(
        "omniglot_28x28_derived.npz",
        ("omniglot",),
        ("8ff9a6e1f9a040d74a961b00a70e71ef",),
        origin="where the data root came from (it is made of github.com/brendenlake/omniglot)",
    )

    def read(self) -> Grey:
        drawings = np.load(self.path(self.source))["images"].reshape(-1, 20, 784)
        train, test = drawings[:, :15].reshape(-1, 784), drawings[:, 15:].reshape(-1, 784)
        return Grey(self.name, *hold_out(train, self.counts[1], self.seed), test)


@dataclass(frozen=True, kw_only=True)
class Caltech(Images):
    """Marlin et al.'s (2010) Caltech 101 silhouettes, split 1: 4,100 / 2,264 / 2,307 of 28x28.

    Ones are background in the file. Here the silhouette is 1.
    """

    name: ClassVar[str] = "caltech silhouettes"
    counts: ClassVar[tuple[int, int, int]] = (4_100, 2_264, 2_307)
    source: ClassVar[Source] = Source(
        "caltech101_silhouettes_28_split1.mat",
        ("caltech101_silhouettes", "."),
        ("4483e9c14b188fd09937f9ea6f9ea777",),
        ("https://people.cs.umass.edu/~marlin/data/caltech101_silhouettes_28_split1.mat",),
    )

    def read(self) -> Grey:
        from scipy.io import loadmat

        content = loadmat(self.path(self.source))
        keys = ("train_data", "val_data", "test_data")
        train, valid, test = (_transpose_images(255 * (1 - content[key])) for key in keys)
        return Grey(self.name, train, valid, test, binary=True)


def _transpose_images(rows: np.ndarray) -> np.ndarray:
    """28x28 images stored column by column, as rows of upright images."""
    return rows.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)
