"""What a program only looks for is taken down; a listing of the import system is told from one of the program's."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

_HEARD = """
import json, os, sys
from gonogo.virtual.lookups import probe_reporting
heard = []
probe_reporting.record_probe = heard.append
undo = probe_reporting.install()
def listen(event, arguments):
    if event == "os.listdir":
        heard.append("listed " + str(arguments[0]))
sys.addaudithook(listen)
"""


def heard(folder: Path, program: str) -> list[str]:
    """The names that a program looked for, or listed."""
    code = _HEARD + textwrap.dedent(program) + "\nprint(json.dumps(heard))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout)
    return names


def test_each_way_to_look(tmp_path: Path) -> None:
    found = heard(
        tmp_path,
        """
        from os import stat
        from pathlib import Path
        os.path.exists("/nowhere/a")
        os.path.isfile("relative"); os.path.lexists(b"/nowhere/bytes"); os.access("/nowhere/access", os.R_OK)
        Path("/nowhere/path").exists(); os.path.islink("/nowhere/link")
        try: stat("/nowhere/imported")
        except OSError: pass
        os.stat(0)
        os.stat(".", dir_fd=os.open("/", os.O_RDONLY))
        """,
    )
    nowhere = ["a", "bytes", "access", "path", "link", "imported"]
    assert [name for name in found if name.startswith("/nowhere")] == [f"/nowhere/{name}" for name in nowhere]
    assert "relative" in found
    assert [name for name in found if name.startswith(("0", "."))] == []


def test_what_gonogo_looks_for_is_no_lookup_of_the_program(tmp_path: Path) -> None:
    found = heard(
        tmp_path,
        """
        import gonogo
        ask = "import os.path, pathlib\\ndef ask(name, also=None):\\n"
        ask += "    os.path.exists(name); pathlib.Path(name).is_dir()\\n    also and also()\\n"
        own, other = {}, {}
        exec(compile(ask, os.path.join(os.path.dirname(gonogo.__file__), "virtual", "own.py"), "exec"), own)
        exec(compile(ask, "/home/user/train.py", "exec"), other)
        own["ask"]("/nowhere/own", lambda: other["ask"]("/nowhere/called"))
        other["ask"]("/nowhere/program")
        """,
    )
    assert [name for name in found if name.startswith("/nowhere")] == ["/nowhere/called"] * 2 + ["/nowhere/program"] * 2


def test_a_listing_of_the_import_system_is_of_modules(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "inner.py").write_text("VALUE = 1\n")
    found = heard(
        tmp_path,
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        from package import inner
        import importlib.metadata
        list(importlib.metadata.distributions())
        os.listdir("package")
        """,
    )
    listed = [name.removeprefix("listed ") for name in found if name.startswith(f"listed {tmp_path}")]
    assert set(listed) == {f"{tmp_path}/././", f"{tmp_path}/package/././"}
    assert "listed package" in found


def test_nothing_is_taken_down_after_it_is_undone(tmp_path: Path) -> None:
    assert heard(tmp_path, "undo(); os.path.exists('/nowhere/a'); os.listdir('/')") == ["listed /"]
