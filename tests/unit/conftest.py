"""What all unit tests share: they depend on no image that happens to be built on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.images import ImageStore
from nearmetal.node import machine


@pytest.fixture(autouse=True)
def _no_images(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = ImageStore(tmp_path_factory.getbasetemp() / "no-images")

    def store(_: Path) -> ImageStore:
        return empty

    monkeypatch.setattr(machine, "ImageStore", store)


@pytest.fixture
def every_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Study files may name every image, as if it were built."""
    monkeypatch.setattr("nearmetal.api.catalog.no_image", lambda *_: None)
