"""Generates whatever in a list can be generated: the folder's files and its table."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from gonogo.evidence.prepared import PreparedStandIns, is_data_file_url
from gonogo.evidence.published.datasets import published_dataset
from gonogo.evidence.published.models import published_model
from gonogo.prepare import walked_folders
from gonogo.prepare.generated.array_files import array_file, checkpoint_file
from gonogo.prepare.generated.data_files import encode_rows, hub_dataset_files, png_image, wav_audio
from gonogo.prepare.generated.indexed_tokens import indexed_token_files
from gonogo.prepare.generated.model_folder import model_files
from gonogo.prepare.generated.rows import FORMATS, RowGenerator, guess_column_kind
from gonogo.prepare.inferred.array_inputs import array_file_names
from gonogo.prepare.inferred.checkpoint_inputs import CHECKPOINT_FORMAT
from gonogo.prepare.inferred.table_inputs import TABLE_FORMAT, columns_text
from gonogo.prepare.required_inputs import INDEXED_TOKENS, VOCABULARIES, PrepareOptions, RequiredInput

_PICTURE, _SOUND = "media/picture.png", "media/sound.wav"
MAX_ROWS = 50_000
_DEFAULT_SPLITS = ("train", "test", "validation")


def generate_files(
    required_inputs: Sequence[RequiredInput], folder: Path, tokens: int, options: PrepareOptions
) -> tuple[dict[str, bytes], PreparedStandIns]:
    """The generated files, by path within ``folder``, and their table. Marks the inputs that were generated."""
    files: dict[str, bytes] = {}
    models: dict[str, str] = {}
    chosen: dict[str, str] = {}
    datasets: dict[str, str] = {}
    paths: dict[str, str] = {}
    addresses: dict[str, str] = {}
    media = {"image": str(folder / _PICTURE), "audio": str(folder / _SOUND)}
    has_media_folder = any(one.kind == "media" and one.state == "can-be-made" for one in required_inputs)
    for one in required_inputs:
        if one.state not in ("can-be-made", "made"):
            continue
        if one.kind == "model":
            _generate_model(one, files, models, paths)
            if one.format and one.format.lower() != one.name.lower():
                chosen[one.name] = one.format
        elif one.kind == "media":
            paths[one.path or ""] = "media"
            files |= {_PICTURE: png_image(), _SOUND: wav_audio()}
        elif one.format == walked_folders.IMAGE_FOLDER_FORMAT and one.path is not None:
            one.found = f"data/{_path_component(one.name)}"
            files |= walked_folders.image_folder_files(
                one.found, one.path, max(options.rows_of.get(one.key, options.rows), one.rows)
            )
            paths[one.path] = one.found
        elif one.format in VOCABULARIES and one.path is not None:
            one.found = f"data/{_path_component(one.name)}"
            model = published_model(VOCABULARIES[one.format])
            assert model is not None
            files[one.found] = model_files(model)[one.format]
            paths[one.path] = one.found
        elif one.format == INDEXED_TOKENS and one.path is not None:
            one.found = f"data/{_path_component(one.name)}"
            for suffix, content in indexed_token_files(tokens).items():
                files[one.found + suffix] = content
                paths[one.path + suffix] = one.found + suffix
        elif one.format == CHECKPOINT_FORMAT and one.path is not None:
            one.found = f"models/{_path_component(one.name)}"
            files[one.found] = checkpoint_file()
            paths[one.path] = one.found
        elif one.layout is not None and one.path is not None:
            _generate_arrays(one, max(options.rows_of.get(one.key, 0), one.rows), files, paths)
        else:
            columns = data_set_columns(one)
            names = {"image": "picture.png", "audio": "sound.wav"} if has_media_folder else media
            maker = RowGenerator(columns, tokens, names)
            many = max(options.rows_of.get(one.key, options.rows), min(one.rows, MAX_ROWS))
            rows = [maker.row(number) for number in range(many)]
            if any(kind.rstrip("s") in ("image", "audio") for kind in columns.values()):
                files |= {_PICTURE: png_image(), _SOUND: wav_audio()}
            _place_rows(one, columns, rows, files, datasets, addresses if is_data_file_url(one.name) else paths)
        one.state = "made"
    data = [one for one in required_inputs if one.kind == "data"]
    return files, PreparedStandIns(
        models,
        datasets,
        paths,
        addresses,
        shapes={one.path: text for one in data if one.state == "made" and one.path and (text := _shape_text(one))},
        guessed=tuple(one.path or one.name for one in data if one.state == "made" and not _has_known_shape(one)),
        missing=tuple(one.path for one in data if one.path and one.state in ("missing", "unknown")),
        spelled={one.name.lower(): one.name for one in required_inputs if one.name.lower() in {*models, *datasets}},
        chosen=chosen,
    )


def _shape_text(required_input: RequiredInput) -> str:
    """``float32[4, 32, ?37]``: sizes that nothing has determined have a question mark. A table: its columns.

    Empty for other data.
    """
    layout = required_input.layout
    if layout is None:
        names = (name.partition(":")[0] for name in required_input.columns)
        return columns_text(names) if required_input.format == TABLE_FORMAT else ""
    if required_input.stated:
        return str(layout)
    sizes = [f"?{size}" if at in layout.undetermined_dimensions else str(size) for at, size in enumerate(layout.shape)]
    return f"{layout.dtype}[{', '.join(sizes)}]"


def _has_known_shape(required_input: RequiredInput) -> bool:
    return required_input.path is None and published_dataset(required_input.name) is not None


def data_set_columns(required_input: RequiredInput) -> dict[str, str]:
    """The columns of a dataset, each with its kind."""
    known = published_dataset(required_input.name) if required_input.path is None else None
    if known is not None:
        return dict(known.columns_in(required_input.subset))
    columns = dict(FORMATS.get(required_input.format or "", {}))
    for name in required_input.columns:
        name, colon, kind = name.partition(":")
        if colon or name not in columns:
            columns[name] = kind or guess_column_kind(name)
    return columns or dict(FORMATS["text"])


def _generate_model(
    required_input: RequiredInput, files: dict[str, bytes], models: dict[str, str], paths: dict[str, str]
) -> None:
    model = published_model(required_input.format or required_input.name)
    assert model is not None
    place = f"models/{_path_component(required_input.name)}"
    made = model_files(model)
    if required_input.path is None:
        models[required_input.name.lower()] = place
    elif not os.path.isdir(required_input.path):
        paths[required_input.path] = place
    else:  # a folder that lacks a part: its own files stay
        missing = [name for name in made if not os.path.lexists(os.path.join(required_input.path, name))]
        made = {name: made[name] for name in missing}
        paths |= {os.path.join(required_input.path, name): f"{place}/{name}" for name in missing}
    files |= {f"{place}/{name}": content for name, content in made.items()}
    required_input.parts = {"configuration": True, "tokenizer": model.tokenizer is not None}
    if "preprocessor_config.json" in made:
        required_input.parts["processor"] = True
    if b'"chat_template"' in made.get("tokenizer_config.json", b""):
        required_input.parts["chat template"] = True
    required_input.found = place


def _generate_arrays(wanted: RequiredInput, rows: int, files: dict[str, bytes], paths: dict[str, str]) -> None:
    """Files of arrays: one, or those in a folder, or those that match a pattern."""
    assert wanted.path is not None
    assert wanted.layout is not None
    wanted.found = place = f"data/{_path_component(wanted.name)}"
    content = [array_file(wanted.suffix, wanted.layout, number) for number in range(2)]
    if not glob.has_magic(wanted.path) and os.path.splitext(wanted.path)[1]:
        wanted.found = place = f"{place}{wanted.suffix}"
        files[place] = content[0]
        paths[wanted.path] = place
        return
    for number, name in enumerate(array_file_names(wanted, min(rows, MAX_ROWS))):
        files[f"{place}/{name}"] = content[number % 2]
        if glob.has_magic(wanted.path):
            paths[os.path.join(os.path.dirname(wanted.path), name)] = f"{place}/{name}"
    if not glob.has_magic(wanted.path):
        paths[wanted.path] = place


def _place_rows(
    required_input: RequiredInput, columns: dict[str, str], rows: list[dict[str, object]], files: dict[str, bytes],
    datasets: dict[str, str], paths: dict[str, str],
) -> None:  # fmt: skip
    place = f"data/{_path_component(required_input.name)}"
    # Store the kinds as well, which names alone don't determine, so that regenerated rows have the same ones.
    required_input.columns, required_input.found = tuple(f"{name}:{kind}" for name, kind in columns.items()), place
    path = required_input.name if is_data_file_url(required_input.name) else required_input.path
    if path is None:
        known = published_dataset(required_input.name)
        splits = known.splits if known is not None else (*required_input.splits, *_DEFAULT_SPLITS)
        subsets = (
            known.subsets
            if known is not None and known.subsets
            else (required_input.subset,)
            if required_input.subset
            else ()
        )
        if required_input.subset and required_input.subset not in subsets:
            subsets = (*subsets, required_input.subset)
        files |= {
            f"{place}/{name}": content for name, content in hub_dataset_files(columns, rows, splits, subsets).items()
        }
        datasets[required_input.name.lower()] = place
        return
    if glob.has_magic(path):
        made = walked_folders.rows_as_files_for_pattern(path, rows)
        files |= {f"{place}/{name}": content for name, content in made.items()}
        paths |= {os.path.join(os.path.dirname(path), name): f"{place}/{name}" for name in made}
        return
    if required_input.suffix:
        files |= {
            f"{place}/{name}": content
            for name, content in walked_folders.rows_as_files_with_suffix(required_input.suffix, rows).items()
        }
    elif not os.path.splitext(path)[1]:  # most programs read a path without a suffix as a folder
        files |= {
            f"{place}/{name}": content for name, content in hub_dataset_files(columns, rows, ("train",), ()).items()
        }
    else:
        place += os.path.splitext(path)[1]
        files[place] = encode_rows(path, rows, required_input.separator)
        required_input.found = place
    paths[path] = place


def _path_component(name: str) -> str:
    """A name as a single path component."""
    return re.sub(r"[^\w.-]+", "--", name).strip("-.") or "it"
