"""The folder of a published model that isn't here, generated without weights and kept in gonogo's cache."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from gonogo.evidence.paths import is_folder
from gonogo.evidence.published.models import PublishedModel, published_model
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.generated.model_folder import model_files
from gonogo.prepare.packages.places import cache_folder


def find_published_folder(name: str) -> Path | None:
    """A folder with the published config and a generated tokenizer; None if the name isn't in the tables.

    Raises UserError if the cache can't be written.
    """
    model = published_model(name)
    return None if model is None else _write_folder(model)


def published_source_text(name: str) -> Text:
    """The sentence of a report about a model that was taken from the tables."""
    model = published_model(name)
    return translated("{name} is not on this machine: its published config was used instead, from {source}").format(
        name=name, source=model.source if model is not None else "?"
    )


def _write_folder(model: PublishedModel) -> Path:
    files = model_files(model)
    content = hashlib.sha256(b"".join(name.encode() + data for name, data in sorted(files.items()))).hexdigest()[:12]
    place = cache_folder().parent / "models" / f"{re.sub(r'[^A-Za-z0-9._-]+', '--', model.name)}-{content}"
    if is_folder(place):
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:  # so that it appears atomically
            made = Path(scratch, "model")
            made.mkdir()
            for name, data in files.items():
                (made / name).write_bytes(data)
            try:
                os.rename(made, place)
            except OSError:
                if not is_folder(place):  # else another process was faster
                    raise
    except OSError as error:
        raise UserError(
            translated("{path}: can't be written ({why}): point XDG_CACHE_HOME to a writable folder").format(
                path=str(place), why=error.strerror or str(error)
            )
        ) from None
    return place
