"""``gonogo prepare --model NAME`` without a command: the folders of published models, for whatever will open them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gonogo.rehearse.prepared.folder import add_to_folder, check_folder
from gonogo.rehearse.prepared.listing import model_wanted
from gonogo.rehearse.prepared.make import make
from gonogo.rehearse.prepared.run import Preparation, options_of


def prepare_models(models: Sequence[str], *, write: bool) -> Preparation:
    """Make the folders of models that are named as ``--model`` takes them; with ``write`` into gonogo-prepared.

    Raises UserError for a name that is not in the table, and where the folder can't be written.
    """
    folder = Path.cwd()
    target = check_folder(folder) if write else None
    options = options_of(0, None, models)
    names = [path if equals else name for path, equals, name in (word.rpartition("=") for word in models)]
    wanted = [model_wanted(name, "", folder, options, asked=True) for name in dict.fromkeys(names)]
    done = Preparation(wanted, tokens=0, rows=0)
    if target is not None:
        files, table = make(wanted, target, 0, options)
        if files:
            done.folder = add_to_folder(folder, files, table).name
    return done
