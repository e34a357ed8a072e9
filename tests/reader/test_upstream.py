"""``--upstream``: releases of a made-up package on an index of the tests, compared by symbol and never run."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from gonogo.evidence.failure.failure_facts import failure_facts
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.setup import Setup
from gonogo.finding.second_opinion.upstream import UpstreamFact
from gonogo.trials.bisect.search import BisectionSearch, Judgement
from gonogo.trials.upstream.archives import Archives
from gonogo.trials.upstream.compare import upstream_facts
from gonogo.trials.upstream.guess import guess_releases
from gonogo.trials.upstream.questions import UpstreamQuestion
from gonogo.trials.upstream.release import BrokenArchive, read_release

OWNED = "open('{marker}', 'w').write('run')\n"
TRAINER = """\
class Base:
    def __init__(self, model, tokenizer=None{more}):
        self.model = model

class Trainer(Base):
    def train(self):
        {line}
"""
READY = "if not self.ready: raise ValueError('not ready')"
RELEASES = {  # what each release of `trainlib` looks like
    "1.0": {"more": "", "line": READY, "helper": "def old_helper(): pass\n"},
    "1.1": {"more": ", peft=None", "line": READY, "helper": "def old_helper(): pass\n"},
    "1.2": {"more": ", peft=None", "line": READY, "helper": "def new_helper(): pass\n"},
    "2.0": {"more": ", peft=None", "line": "self.prepare()", "helper": "def new_helper(): pass\n"},
    "2.1": {"more": "", "line": "self.prepare()", "helper": "def new_helper(): pass\n"},
}


def files_of(version: str, marker: Path) -> dict[str, str]:
    parts = RELEASES[version]
    return {
        "trainlib/__init__.py": OWNED.format(marker=marker) + "from .trainer import Trainer\n",
        "trainlib/trainer.py": TRAINER.format(**parts),
        "trainlib/utils.py": parts["helper"],
        "setup.py": OWNED.format(marker=marker),
    }


def wheel(folder: Path, version: str, files: dict[str, str]) -> Path:
    path = folder / f"trainlib-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def sdist(folder: Path, version: str, files: dict[str, str], changelog: str = "") -> Path:
    path = folder / f"trainlib-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {**files, "CHANGELOG.md": changelog}.items():
            member = tarfile.TarInfo(f"trainlib-{version}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


CHANGES = "# 2.0\n\n- something else\n\n# 1.2\n\n- `old_helper` is now `new_helper`\n"


@contextlib.contextmanager
def index(folder: Path, *, as_html: bool = False, wrong_digest: bool = False) -> Iterator[str]:
    simple = folder / "simple" / "trainlib"
    simple.mkdir(parents=True, exist_ok=True)
    paths = [path for path in folder.iterdir() if path.is_file()]
    files: list[dict[str, Any]] = [
        {
            "filename": path.name,
            "url": f"/{path.name}",
            "hashes": {"sha256": "0" * 64 if wrong_digest else sha256(path.read_bytes()).hexdigest()},
            "size": path.stat().st_size,
        }
        for path in paths
    ]
    if as_html:
        links = (
            f'<a href="../../{one["filename"]}#sha256={one["hashes"]["sha256"]}">{one["filename"]}</a>' for one in files
        )
        (simple / "index.html").write_text("<html>" + "<br>".join(links))
    else:
        (simple / "index.html").write_text(json.dumps({"files": files, "name": "trainlib"}))

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(folder))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All releases: wheels, and of two of them a source archive with a changelog. Whatever runs them leaves a mark."""
    folder = tmp_path / "published"
    folder.mkdir()
    for version in RELEASES:
        wheel(folder, version, files_of(version, tmp_path / "owned"))
    sdist(folder, "1.2", {**files_of("1.2", tmp_path / "owned"), "more.py": "x = 1\n" * 5000}, CHANGES)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    return folder


FRAME = '  File "/x/site-packages/trainlib/trainer.py", line 6, in train\n    {}\n'
IMPORT = "ImportError: cannot import name '{}' from 'trainlib.utils' (/x/site-packages/trainlib/utils.py)\n"
HEAD = 'Traceback (most recent call last):\n  File "/home/a/train.py", line 3, in main\n    run()\n'


def facts(
    published: Path, monkeypatch: pytest.MonkeyPatch, log: str, version: str, **how: bool
) -> tuple[UpstreamFact, ...]:
    with index(published, **how) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        lines = [LogLine("a.log", number, text) for number, text in enumerate(log.splitlines(), 1)]
        versions = {"trainlib": version} if version else {}
        chain = failure_facts(FailureLog(lines, Setup(version_texts=versions))).chain
        found = upstream_facts(chain, versions, Archives(seconds=60))
    assert not (published.parent / "owned").exists()
    return found


@pytest.mark.parametrize("as_html", [False, True])
def test_a_name_that_is_gone_is_dated_by_its_last_release(
    published: Path, monkeypatch: pytest.MonkeyPatch, as_html: bool
) -> None:
    (fact,) = facts(published, monkeypatch, HEAD + IMPORT.format("old_helper"), "2.1", as_html=as_html)
    assert "it was removed in 1.2; 1.1 is the last release that has it" in fact.said.en
    assert (fact.releases, fact.neighbours) == (("1.1",), ("1.2",))
    assert fact.changelog == "1.2: - `old_helper` is now `new_helper`"


def test_a_name_that_is_not_there_yet(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fact,) = facts(published, monkeypatch, HEAD + IMPORT.format("new_helper"), "1.0")
    assert "it exists from 1.2 on" in fact.said.en
    assert fact.releases == ("1.2",)


def test_a_name_that_no_release_has(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fact,) = facts(published, monkeypatch, HEAD + IMPORT.format("no_helper"), "1.1")
    assert "none of the releases examined has it (1.0 to 2.1)" in fact.said.en
    assert fact.releases == ()


def test_a_name_that_is_there_all_the_same(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fact,) = facts(published, monkeypatch, HEAD + IMPORT.format("old_helper"), "1.0")
    assert fact.said.en.startswith("trainlib 1.0 has `old_helper` in trainlib.utils")


@pytest.mark.slow
def test_an_argument_of_a_base_class_in_another_release(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = HEAD + FRAME.format("return Trainer(peft=1)")
    log += "TypeError: Trainer.__init__() got an unexpected keyword argument 'peft'\n"
    first = facts(published, monkeypatch, log, "1.0")[0]
    assert "does not have the argument `peft` of Trainer.__init__; it exists from 1.1 on" in first.said.en
    last = facts(published, monkeypatch, log, "2.1")[0]
    assert "it was removed in 2.1; 2.0 is the last release that has it" in last.said.en


@pytest.mark.slow
def test_the_line_that_raised_is_gone_later(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = HEAD + FRAME.format("if not self.ready: raise ValueError('not ready')") + "ValueError: not ready\n"
    (fact,) = facts(published, monkeypatch, log, "1.1")
    assert "it no longer exists from 2.0 on" in fact.said.en
    (still,) = facts(published, monkeypatch, HEAD + FRAME.format("self.prepare()") + "ValueError: x\n", "2.1")
    assert "it was introduced in 2.0; 1.2 does not have it" in still.said.en
    assert "still exists in 2.1" in still.said.en


@pytest.mark.slow
def test_what_can_not_be_compared_is_said(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = HEAD + IMPORT.format("old_helper")
    assert "does not show its version" in facts(published, monkeypatch, log, "")[0].said.en
    assert "can't be obtained from the index" in facts(published, monkeypatch, log, "7.7")[0].said.en
    (wrong,) = facts(published, monkeypatch, log, "2.1", wrong_digest=True)
    assert "can't be obtained from the index" in wrong.said.en
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    lines = [LogLine("a.log", number, text) for number, text in enumerate(log.splitlines(), 1)]
    chain = failure_facts(FailureLog(lines, Setup(version_texts={"trainlib": "2.1"}))).chain
    (none,) = upstream_facts(chain, {"trainlib": "2.1"}, Archives(seconds=60))
    assert "its releases can't be obtained" in none.said.en


def test_archives_are_bounded(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with index(published) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        archives = Archives(files=2)
        assert archives.releases("trainlib") == [Version(one) for one in RELEASES]
        read = [archives.release("trainlib", Version(version)) for version in RELEASES]
    assert [one is not None for one in read] == [True, True, False, False, False]
    assert archives.is_spent


def _zip_of(name: str, data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "a.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
        return path

    return write


def _bomb(folder: Path) -> Path:
    path = folder / "a.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for _ in range(1100):
            packed.write(b"\0" * (1 << 20))
    return path


def _broken(folder: Path) -> Path:
    path = folder / "a.tar.gz"
    path.write_bytes(b"no archive at all")
    return path


@pytest.mark.parametrize("make", [_bomb, _broken], ids=["bomb", "broken"])
def test_hostile_archives_are_refused(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with contextlib.suppress(BrokenArchive):
        assert read_release(make(tmp_path), "x", Version("1")).files == {}


@pytest.mark.parametrize(
    "make",
    [_zip_of("../../evil.py", b"x"), _zip_of("/etc/evil.py", b"x"), _zip_of("a.py", b" " * (8 << 20))],
    ids=["up", "absolute", "large"],
)
def test_members_that_lead_out_or_are_too_large_are_passed_over(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    assert read_release(make(tmp_path), "x", Version("1")).files == {}


def test_what_is_no_python_answers_nothing(tmp_path: Path) -> None:
    release = read_release(_zip_of("x/__init__.py", b"def (:\n\x00" + b"(" * 10_000)(tmp_path), "x", Version("1"))
    assert release.has_name("x/__init__.py", "name") is None
    assert list(release.definitions_of("name")) == []


def test_the_first_guess_of_a_bisection(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with index(published) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        found = guess_releases(HEAD + IMPORT.format("old_helper"), {"trainlib": "2.1"}, Archives())
    assert [(one.package, str(one.other), str(one.same)) for one in found] == [("trainlib", "1.1", "1.2")]
    releases = [Version(f"1.{minor}") for minor in range(40)]
    search = BisectionSearch(releases, releases[0], releases[-1])
    search.suggest([Version("1.7"), Version("9.9"), Version("1.8")])
    assert search.next() == Version("1.7")
    search.record_judgement(Version("1.7"), Judgement.GOOD)
    assert search.next() == Version("1.8")
    search.record_judgement(Version("1.8"), Judgement.BAD)
    assert search.next() is None
    assert search.suspects == [Version("1.8")]


@pytest.mark.slow
def test_the_command_says_it_and_the_pack_has_it(published: Path, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(HEAD + IMPORT.format("old_helper"))
    (tmp_path / "versions.txt").write_text("trainlib==2.1\n")
    with index(published) as url:
        done = subprocess.run(
            [sys.executable, "-m", "gonogo", "diagnose", "a.log", "--environment", "versions.txt", "--upstream",
             "--format", "json", "--with-pack", "--lang", "en"],
            cwd=tmp_path, env={**os.environ, "PIP_INDEX_URL": url}, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["upstream"][0]["releases"] == ["1.1"]
    assert "it was removed in 1.2" in report["pack"].split("## Other releases")[1]
    assert not (tmp_path / "owned").exists()


CONFIG = """\
from elsewhere import Arguments

class Config(Arguments):
    declared: int = 1

    def __post_init__(self):
        taken = self.given.pop("taken", None)
        self.kept = taken
        other.foreign = taken

    @property
    def asked(self):
        return 1
"""


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("declared", True),
        ("kept", True),
        ("asked", True),
        ("taken", False),
        ("foreign", False),
        ("num_iterations", False),
    ],
)
def test_what_a_class_has_is_what_it_sets_on_itself(tmp_path: Path, name: str, there: bool) -> None:
    archive = wheel(tmp_path, "1.0", {"trainlib/__init__.py": CONFIG})
    release = read_release(archive, "trainlib", Version("1.0"))
    assert UpstreamQuestion("attribute", ("trainlib",), "Config", name).answer_for(release) is there
