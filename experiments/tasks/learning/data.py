"""The data that a task learns from."""

from latticework.data.base import Dataset


def require_data(data: Dataset | None) -> Dataset:
    """The data. Raises ValueError if there are none."""
    if data is None:
        raise ValueError("learning needs a data set; give one, such as data=static_mnist")
    return data
