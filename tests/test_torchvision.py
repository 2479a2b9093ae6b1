"""torchvision is imported beside any PyTorch, and used where its readers serve."""

import sys

import pytest

import latticework.torchvision_ops
from latticework.data.images import MNIST, USPS


def test_operators_of_torchvision_are_declared_only_where_it_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(latticework.torchvision_ops, "_libraries", [])
    assert (
        latticework.torchvision_ops.ensure_importable() is False
    )  # as loading transformers has left it
    monkeypatch.setitem(sys.modules, "torchvision", None)  # not installed
    assert latticework.torchvision_ops.ensure_importable() is False

    def broken(name):
        raise RuntimeError("of its own")

    monkeypatch.setattr(latticework.torchvision_ops.importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="of its own"):
        latticework.torchvision_ops.ensure_importable()
    assert latticework.torchvision_ops._libraries == []


def test_checksums_and_addresses_are_those_of_torchvision():
    latticework.torchvision_ops.ensure_importable()
    from torchvision import datasets

    theirs = dict(datasets.MNIST.resources)
    for split in ("train", "test"):
        source = MNIST.sources[split]
        assert source.md5 == (theirs[source.name],)
        assert set(source.urls) == {mirror + source.name for mirror in datasets.MNIST.mirrors}
        url, name, md5 = datasets.USPS.split_list[split]
        assert USPS.sources[split].name == name
        assert USPS.sources[split].urls == (url,)
        assert md5 in USPS.sources[split].md5
