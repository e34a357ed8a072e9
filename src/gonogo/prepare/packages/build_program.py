"""``STEP SOURCE SUBFOLDER WORK BACKEND BACKEND_PATH RESULT``: one step of a build, in the build environment's Python.

STEP is ``system`` (copy pyproject.toml to RESULT), ``requires`` (write the backend's further requirements to RESULT,
as a JSON list) or ``wheel`` (build a wheel into the folder RESULT). It runs confined and imports nothing of gonogo,
because it runs the code of untrusted sources.
"""

import importlib
import json
import os
import shutil
import sys
import tarfile
import zipfile


def main(*arguments: str) -> None:
    """Unpack the sources, and call the hook of their build backend (PEP 517)."""
    step, source, subfolder, work, backend, backend_path, result = arguments
    shutil.rmtree(work, ignore_errors=True)
    os.chdir(os.path.join(_unpack_source(source, work), subfolder))
    if step == "system":
        if os.path.exists("pyproject.toml"):
            shutil.copyfile("pyproject.toml", result)
        return
    sys.path[:0] = [os.path.abspath(place) for place in json.loads(backend_path)]
    module, _, attributes = backend.partition(":")
    hooks = importlib.import_module(module)
    for name in attributes.split(".") if attributes else ():
        hooks = getattr(hooks, name)
    if step == "requires":
        hook = getattr(hooks, "get_requires_for_build_wheel", None)
        with open(result, "w", encoding="utf-8") as file:
            json.dump(list(hook() if hook is not None else ()), file)
    else:
        hooks.build_wheel(result)


def _unpack_source(source: str, work_dir: str) -> str:
    """The folder of the sources; an archive is unpacked, and contains a single folder."""
    if os.path.isdir(source):
        shutil.copytree(source, work_dir, symlinks=True)
        return work_dir
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as file:
            file.extractall(work_dir)
    else:
        with tarfile.open(source) as file:
            if hasattr(tarfile, "data_filter"):
                file.extractall(work_dir, filter="data")
            else:
                file.extractall(work_dir)
    names = os.listdir(work_dir)
    return os.path.join(work_dir, names[0]) if len(names) == 1 else work_dir


if __name__ == "__main__":
    main(*sys.argv[1:])
