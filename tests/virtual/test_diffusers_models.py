"""A model of diffusers is made of its configuration where its weights are not here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.weights import readers

LIBRARY = """\
class ModelMixin:
    @classmethod
    def load_config(cls, path, subfolder=None):
        return {"path": path, "subfolder": subfolder}

    @classmethod
    def from_config(cls, config):
        model = cls()
        model.config = config
        return model

    def eval(self):
        return self

    @classmethod
    def from_pretrained(cls, path, **kwargs):
        raise OSError({said!r})
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.syspath_prepend(tmp_path)
    told: list[str] = []
    patches = Patches()
    readers._patch_diffusers(patches, told.append)
    yield told
    patches.undo()
    for name in [name for name in sys.modules if name.partition(".")[0] == "diffusers"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("Error no file named diffusion_pytorch_model.bin found in directory m", True),
        ("m does not appear to have a file named diffusion_pytorch_model.bin.", True),
        ("m does not appear to have a file named config.json.", False),
        ("x", False),
    ],
)
def test_a_model_without_weights(told: list[str], tmp_path: Path, said: str, made: bool) -> None:
    (tmp_path / "diffusers" / "models").mkdir(parents=True)
    for name in ("diffusers/__init__.py", "diffusers/models/__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "diffusers" / "models" / "modeling_utils.py").write_text(LIBRARY.replace("{said!r}", repr(said)))
    from diffusers.models.modeling_utils import ModelMixin  # type: ignore[import-not-found]

    if not made:
        with pytest.raises(OSError, match=re.escape(said)):
            ModelMixin.from_pretrained("m")
        return
    assert ModelMixin.from_pretrained("m", subfolder="vae").config == {"path": "m", "subfolder": "vae"}
    assert "m" in told[0]
