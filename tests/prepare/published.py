"""All published models that gonogo knows."""

from __future__ import annotations

import json

from gonogo.evidence.published.models import FOLDER, PublishedModel, published_model


def all_models() -> list[PublishedModel]:
    """One for each name in the table."""
    read = json.loads((FOLDER / "models.json").read_text())
    found = [published_model(name) for row in read["models"] for name in row["names"]]
    models = [model for model in found if model is not None]
    assert len(models) == len(found)
    return models
