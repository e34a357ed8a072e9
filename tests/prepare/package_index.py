"""An index on localhost for a real pip and uv: wheels and sources that tests make, and what was asked of it."""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile


class Index:
    """Files below ``folder/files`` are its packages: ``publish`` has its pages list them."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir()
        self.address = f"http://127.0.0.1:{port}"
        self.asked: list[str] = []

    def publish(self) -> None:
        """Write the pages of the simple API."""
        for file in self.files.iterdir():
            name = file.name.split("-")[0].replace("_", "-").lower()
            if file.suffix == ".gz":
                name = file.name.removesuffix(".tar.gz").rpartition("-")[0].replace("_", "-").lower()
            page = self.folder / "simple" / name / "index.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            known = page.read_text() if page.exists() else "<!DOCTYPE html><html><body>\n"
            line = f'<a href="{self.address}/files/{file.name}">{file.name}</a><br>\n'
            page.write_text(known if line in known else known + line)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Index]:
    """An index at work."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    index = Index(folder, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sources(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A release that there are only sources of."""
    path = folder / f"{name.replace('-', '_')}-{version}.tar.gz"
    told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in {"PKG-INFO": told, **files}.items():
            entry = tarfile.TarInfo(f"{name.replace('-', '_')}-{version}/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def in_tree(name: str, version: str, first: str = "", requires: str = "") -> dict[str, str]:
    """Sources with a build backend of their own, which runs ``first`` and needs nothing else."""
    return {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": _BACKEND.format(name=name.replace("-", "_"), version=version, first=first, requires=requires),
    }


_BACKEND = """
import zipfile
{first}

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    with zipfile.ZipFile(folder + "/" + name, "w") as file:
        file.writestr("{name}.py", "__version__ = '{version}'")
        file.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{requires}")
        tags = "Root-Is-Purelib: true\\nTag: py3-none-any\\n"
        file.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\n" + tags)
        file.writestr(info + "/RECORD", "")
    return name
"""


def wheel_of_installed(folder: Path, name: str) -> None:
    """A wheel with the files of an installed pure package."""
    found = metadata.distribution(name)
    path = folder / f"{name}-{found.version}-py3-none-any.whl"
    with ZipFile(path, "w") as file:
        for one in found.files or ():
            place = Path(str(found.locate_file(one)))
            if ".." not in one.parts and one.suffix != ".pyc" and place.is_file():
                file.write(place, str(one))
