"""Image data: found, checked, downloaded or replaced out loud; split and made binary as stated."""

import bz2
import gzip
import hashlib
import logging
import os
import threading
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from latticework.data import files
from latticework.data.base import Dataset, binarize, derive, fixed_subset
from latticework.data.digits import Digits
from latticework.data.files import DamagedFileError, MissingFileError, Source, find
from latticework.data.images import MNIST, USPS, Caltech, Omniglot, OmniglotDerived

OPEN = urllib.request.urlopen
GREY = np.random.default_rng(0).integers(0, 256, (7, 784), dtype=np.uint8)
real_data = pytest.mark.skipif(
    "LATTICEWORK_DATA" not in os.environ, reason="LATTICEWORK_DATA names no data root"
)


def published(source, content, **changes):
    """The source as if `content` were what its publishers offer."""
    return replace(source, md5=(hashlib.md5(content).hexdigest(),), **changes)


def put(root, source, content, folder=0):
    path = root / source.folders[folder] / source.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def idx(images):
    header = np.array([2051, len(images), 28, 28], ">i4").tobytes()
    return gzip.compress(header + images.tobytes(), mtime=0)


@pytest.fixture
def tiny_mnist(root, monkeypatch):
    """A data root with an MNIST of 4 / 1 / 2 images."""
    contents = {"train": idx(GREY[:5]), "test": idx(GREY[5:])}
    sources = {split: published(MNIST.sources[split], c) for split, c in contents.items()}
    monkeypatch.setattr(MNIST, "sources", MNIST.sources | sources)
    monkeypatch.setattr(MNIST, "counts", (4, 1, 2))
    for split, content in contents.items():
        put(root, sources[split], content)
    return root


def test_threshold_and_order_of_splits(tiny_mnist):
    data = MNIST(root=str(tiny_mnist), strict=True).load()
    assert np.array_equal(torch.cat([data.train, data.valid, data.test]), GREY > 127)
    assert data.variant == "mnist, thresholded at 0.5"
    assert (data.shape, data.epoch_size, data.substitute) == ((28, 28), 4, False)


def test_dynamic_keeps_grey_for_training_and_draws_the_rest_once(tiny_mnist):
    data = MNIST(root=str(tiny_mnist), binarize="dynamic").load()
    again = MNIST(root=str(tiny_mnist), binarize="dynamic").load()
    other = MNIST(root=str(tiny_mnist), binarize="dynamic", seed=1).load()
    assert np.array_equal(data.train, GREY[:4])
    assert data.test.max() == 1
    assert torch.equal(data.test, again.test)
    assert data.fingerprint == again.fingerprint
    assert not torch.equal(data.test, other.test)
    assert data.fingerprint != other.fingerprint
    torch.testing.assert_close(data.mean, torch.tensor(GREY[:4] / 255).mean(0).float())
    batch = data.batch(torch.tensor([0, 2]), derive(0, "batch"))
    assert batch.shape == (2, 784)
    assert set(batch.unique().tolist()) == {0.0, 1.0}


def test_binarize_draws_with_the_grey_value_as_probability():
    grey = torch.tensor([0, 51, 204, 255], dtype=torch.uint8).repeat(20_000, 1)
    frequency = binarize(grey, derive(0, "test")).mean(0)

    def z(probability):
        spread = (probability * (1 - probability) / len(grey)).sqrt()
        return ((frequency - probability).abs() / spread)[1:3]

    assert frequency[0] == 0
    assert frequency[3] == 1
    assert (z(grey[0] / 255) < 5).all()
    assert (z(grey[0] / 256 + 0.02) > 5).all()  # control: a slightly wrong probability


def test_generators_differ_by_seed_and_purpose():
    pairs = [(0, "a"), (0, "b"), (1, "a"), (11, "a"), (1, "1a")]
    assert len({torch.rand((), generator=derive(*pair)).item() for pair in pairs + pairs}) == 5


def test_some_rows_are_no_run_of_rows_and_always_the_same():
    """The test rows of the static MNIST come digit by digit: the first thousand are zeros."""
    rows = torch.arange(1000.0).unsqueeze(1)
    drawn = fixed_subset(rows, 100)
    assert len(drawn) == len(drawn.unique()) == 100
    assert 400 < drawn.mean() < 600
    assert torch.equal(drawn, fixed_subset(rows, 100))
    assert torch.equal(fixed_subset(rows, None), fixed_subset(rows, 2000))


@pytest.mark.parametrize("content", [b"", b"<html>", idx(GREY[:5])[:-100]])
def test_a_damaged_file_is_an_error_and_stays(tiny_mnist, content):
    source = MNIST.sources["train"]
    path = put(tiny_mnist, source, content)
    with pytest.raises(DamagedFileError) as raised:
        MNIST(root=str(tiny_mnist)).load()  # not strict: no substitute all the same
    message = str(raised.value)
    found = hashlib.md5(content).hexdigest()
    for part in (str(path), source.md5[0], found, source.urls[0]):
        assert part in message
    assert path.read_bytes() == content


def test_missing_data_are_replaced_out_loud(root, caplog):
    caplog.set_level("WARNING")  # whatever level an earlier test has left
    data = MNIST(root=str(root)).load()
    assert data.substitute
    assert data.variant == (
        "scikit-learn digits at 28x28, thresholded at 0.5, in place of mnist, thresholded at 0.5"
    )
    assert data.epoch_size == 50_000  # as many updates as on MNIST
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.count("\n") > 5
    for part in ("SUBSTITUTE DATA", "no network", MNIST.sources["train"].name):
        assert part in record.message
    assert USPS(root=str(root)).load().shape == (16, 16)


@pytest.mark.parametrize("loader", [MNIST, USPS, Omniglot, OmniglotDerived, Caltech])
def test_strict_refuses_a_substitute(root, loader):
    with pytest.raises(MissingFileError, match="is missing: looked in .* Get it from"):
        loader(strict=True).load()


@pytest.fixture
def offered(root, monkeypatch):
    """A file offered at a local address, behind a dead mirror."""
    monkeypatch.setattr(urllib.request, "urlopen", OPEN)
    offer = root / "offer"
    offer.write_bytes(b"content")
    urls = ((root / "dead").as_uri(), offer.as_uri())
    return published(Source("file", ("folder",)), b"content", urls=urls), offer


def test_a_download_lands_in_the_cache_whole_and_is_found_again(offered):
    source, offer = offered
    path = find(source)
    assert path == files.CACHE / "folder" / "file"
    assert path.read_bytes() == b"content"
    offer.unlink()
    assert find(source) == path
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("save", "message"), [(None, "another file: expected md5"), ("silent", "TimeoutError")]
)
def test_a_download_that_is_wrong_or_hangs_is_not_kept(offered, monkeypatch, save, message):
    """A name server that does not answer holds up no run."""
    source, offer = offered
    offer.write_bytes(b"a login page")
    silence = threading.Event()
    if save:
        monkeypatch.setattr(files, "TIMEOUT", 0.01)
        monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: silence.wait())
    with pytest.raises(MissingFileError, match=message):
        find(source)
    silence.set()
    assert not list(files.CACHE.glob("folder/*"))


class Short(BaseHTTPRequestHandler):
    """A server that announces ten bytes and sends four, as a connection that breaks off."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"half")

    def log_message(self, *_):
        pass


def test_a_download_that_breaks_off_is_not_kept(root, monkeypatch):
    """Also that of a file without a checksum."""
    monkeypatch.setattr(urllib.request, "urlopen", OPEN)
    with HTTPServer(("127.0.0.1", 0), Short) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        source = Source("file", ("folder",), urls=(f"http://127.0.0.1:{server.server_port}/",))
        with pytest.raises(MissingFileError, match="the answer ended after 4 of 10 bytes"):
            find(source)
    assert not any((files.CACHE / "folder").iterdir())


def test_processes_with_one_number_download_apart(offered, monkeypatch):
    """In two containers that share a cache, both may be process 1."""
    parts: list[Path] = []
    monkeypatch.setattr(files, "_save", lambda _, path: parts.append(path) or path.touch())
    for _ in range(2):
        with pytest.raises(MissingFileError, match="another file"):
            find(offered[0])
    assert len(set(parts)) == 2


def test_static_mnist_is_the_same_packed_and_as_text(root, monkeypatch):
    bits = {"train": GREY[:4] & 1, "valid": GREY[4:5] & 1, "test": GREY[5:] & 1}
    np.savez(root / "packed.npz", **{k: np.packbits(v, axis=1) for k, v in bits.items()})
    contents = {"packed": (root / "packed.npz").read_bytes()}
    for split, rows in bits.items():
        lines = (" ".join(map(str, row)) + "\n" for row in rows)
        contents[f"static {split}"] = "".join(lines).encode()
    sources = {key: published(MNIST.sources[key], c) for key, c in contents.items()}
    monkeypatch.setattr(MNIST, "sources", sources)
    monkeypatch.setattr(MNIST, "counts", (4, 1, 2))
    paths = {key: put(root, sources[key], content) for key, content in contents.items()}

    packed = MNIST(root=str(root), binarize="static", strict=True).load()
    paths["packed"].unlink()
    text = MNIST(root=str(root), binarize="static", strict=True).load()
    assert np.array_equal(packed.train, bits["train"])
    assert packed.fingerprint == text.fingerprint
    assert packed.variant == "mnist, Larochelle's static binarization"


def usps_of(values, root, monkeypatch):
    """A loader of the grey values `[5, 256]`, the last of them for testing."""
    lines = [
        "7 " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(row, 1)) + " \n" for row in values
    ]
    contents = {"train": lines[:4], "test": lines[4:]}
    packed = {split: bz2.compress("".join(c).encode()) for split, c in contents.items()}
    sources = {split: published(USPS.sources[split], c) for split, c in packed.items()}
    monkeypatch.setattr(USPS, "sources", sources)
    monkeypatch.setattr(USPS, "counts", (3, 1, 1))
    for split, content in packed.items():
        put(root, sources[split], content, folder=1)
    return USPS(root=str(root), strict=True)


def test_usps_text_and_held_out_images(root, monkeypatch):
    for seed in (2, 1):  # another file in the same place is read
        values = np.random.default_rng(seed).uniform(-1, 1, (5, 256)).round(6)
        data = usps_of(values, root, monkeypatch).load()
        expected = {tuple(row) for row in (values > 0).astype(int).tolist()}
        found = {tuple(row) for row in torch.cat([data.train, data.valid, data.test]).tolist()}
        assert found == expected
        assert np.array_equal(data.test[0], values[4] > 0)
    other = {tuple(USPS(root=str(root), seed=s).load().valid[0].tolist()) for s in range(20)}
    assert len(other) == 4  # every training image is held out by some seed


def test_columns_become_rows_and_silhouettes_are_on(root, monkeypatch):
    upright = (GREY > 200).astype(np.uint8).reshape(-1, 28, 28)
    stored = upright.transpose(0, 2, 1).reshape(-1, 784)
    path = root / "mat"
    keys = {"train_data": slice(4), "val_data": slice(4, 5), "test_data": slice(5, 7)}
    savemat(path, {key: 1 - stored[rows] for key, rows in keys.items()}, appendmat=False)
    monkeypatch.setattr(Caltech, "source", published(Caltech.source, path.read_bytes()))
    monkeypatch.setattr(Caltech, "counts", (4, 1, 2))
    put(root, Caltech.source, path.read_bytes())
    data = Caltech(root=str(root), strict=True).load()
    assert np.array_equal(data.train.view(-1, 28, 28), upright[:4])

    savemat(path, {"data": stored[:5].T * 1.0, "testdata": stored[5:].T * 1.0}, appendmat=False)
    monkeypatch.setattr(Omniglot, "counts", (4, 1, 2))
    chardata = put(root, Omniglot.source, path.read_bytes())
    data = Omniglot(root=str(root), strict=True).load()
    assert np.array_equal(data.test.view(-1, 28, 28), upright[5:])

    chardata.write_bytes(path.read_bytes()[:-500])  # no checksum is published for this one
    with pytest.raises(DamagedFileError, match=r"chardata\.mat"):
        Omniglot(root=str(root)).load()


def test_omniglot_derived_tests_on_each_characters_last_drawings(root, monkeypatch):
    images = np.zeros((40, 784), np.uint8)
    images[15:20], images[35:40] = 255, 255  # drawings 16 to 20 of two characters
    np.savez(root / "images.npz", images=images)
    content = (root / "images.npz").read_bytes()
    monkeypatch.setattr(OmniglotDerived, "source", published(OmniglotDerived.source, content))
    monkeypatch.setattr(OmniglotDerived, "counts", (26, 4, 10))
    put(root, OmniglotDerived.source, content)
    data = OmniglotDerived(root=str(root), strict=True).load()
    assert data.test.all()
    assert not data.train.any() | data.valid.any()


@pytest.mark.parametrize("size", [16, 28])
def test_digits_asked_for_are_no_substitute(size):
    data = Digits(size=size).load()
    assert (data.shape, data.substitute) == ((size, size), False)
    assert [len(rows) for rows in (data.train, data.valid, data.test)] == [1297, 250, 250]
    assert 0.25 < data.mean.mean() < 0.35  # the digits' own mean ink is 4.88 / 16 = 0.31
    grey = Digits(size=size, binarize="dynamic").load()
    assert torch.equal(grey.train > 127, data.train.bool())


@pytest.mark.parametrize(
    "make",
    [
        lambda: MNIST(binarize="treshold"),
        lambda: Digits(binarize="none"),
        lambda: Digits(size=4),
        lambda: Dataset(*[torch.zeros(2, 4)] * 3, shape=(2, 2), variant=""),
        lambda: Dataset(*[torch.zeros(2, 5).byte()] * 3, shape=(2, 2), variant=""),
        lambda: Dataset(*[torch.full((2, 4), 255).byte()] * 3, shape=(2, 2), variant=""),
        lambda: Dataset(*[torch.full((2, 4), 2).byte()] * 3, shape=(2, 2), variant="", grey=True),
    ],
)
def test_wrong_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"must be .*, got"):
        make()


@pytest.mark.slow
@real_data
@pytest.mark.parametrize(
    ("loader", "counts", "means"),
    [
        (MNIST(strict=True), (50_000, 10_000, 10_000), (0.13256, 0.13074, 0.13423)),
        (
            MNIST(strict=True, binarize="static"),
            (50_000, 10_000, 10_000),
            (0.13056, 0.13113, 0.13251),
        ),
        (USPS(strict=True), (6_291, 1_000, 2_007), (0.24244, 0.24134, 0.25751)),
        (OmniglotDerived(strict=True), (23_000, 1_345, 8_115), (0.08085, 0.08055, 0.07994)),
        (Caltech(strict=True), (4_100, 2_264, 2_307), (0.44895, 0.46404, 0.46098)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_real_files(loader, counts, means):
    data = loader.load()
    assert (len(data.train), len(data.valid), len(data.test)) == counts
    found = (data.mean, data.valid, data.test)
    for rows, mean in zip(found, means, strict=True):
        assert rows.double().mean().item() == pytest.approx(mean, abs=5e-6)
    assert not data.substitute


def test_an_installed_wheel_keeps_downloads_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.default_cache(tmp_path / "site" / "data") == tmp_path / "latticework"
    (tmp_path / "pyproject.toml").touch()
    assert files.default_cache(tmp_path / "data") == tmp_path / "data" / "cache"
