"""What strangers' files have installed: nothing of theirs runs unconfined, nothing comes from where they say."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from prepare.package_index import Index, in_tree, served, sources, wheel_of_installed
from wheels import wheel

from gonogo.finding import Text, UserError
from gonogo.prepare import prompts
from gonogo.prepare.packages import build_overlay, consent, packages_for
from gonogo.prepare.packages.building import BUILD_PACKAGES, conflicting_requirements
from gonogo.prepare.packages.consent import InstallNotConfirmed
from gonogo.prepare.packages.environment_build import GONOGO_DEPENDENCIES
from gonogo.prepare.packages.full_environment import build_full_environment, existing_environment
from gonogo.prepare.packages.installers import installer_environment
from gonogo.prepare.packages.overlay import PackageOverlay


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The only index that pip and uv are set to, with what any environment needs; caches and a home of their own."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        (folder := tmp_path / name.lower()).mkdir()
        monkeypatch.setenv(name, str(folder))
    (tmp_path / "index").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(tmp_path / "index") as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/simple/")
        needed = [Requirement(text) for text in metadata.requires("torch") or []]
        for requirement in (*map(Requirement, (*BUILD_PACKAGES, *GONOGO_DEPENDENCIES)), *needed):
            wheel(index.files, requirement.name, "80.9")
        wheel(index.files, "filler", "22.1")
        index.publish()
        yield index


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def requirements(project: Path, text: str) -> Path:
    path = project / "requirements.txt"
    path.write_text(text)
    return path


def installed(made: PackageOverlay) -> dict[str, str]:
    assert made.python is not None
    packages = next((made.python.parent.parent / "lib").glob("python3.*/site-packages"))
    return {one.name.replace("_", "-"): one.version for one in metadata.distributions(path=[str(packages)])}


def told(made: PackageOverlay) -> dict[str, str]:
    return {what.en: why.en for what, why in made.skipped}


def trap(marker: Path, port: int) -> str:
    """Python that changes a file outside, deletes one, and reaches for a server; it goes on whatever comes of it."""
    return f"""
import os, socket
for attempt in (
    lambda: open({str(marker)!r}, "w").write("was here"),
    lambda: os.unlink({str(marker.with_name("kept"))!r}),
    lambda: socket.create_connection(("127.0.0.1", {port}), 1).sendall(b"GET /from-the-build HTTP/1.0\\r\\n\\r\\n"),
):
    try:
        attempt()
    except OSError:
        pass
"""


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    """A file that must never be there, beside one that must stay."""
    marker = tmp_path / "marker"
    marker.with_name("kept").write_text("kept")
    yield marker
    assert not marker.exists()
    assert marker.with_name("kept").read_text() == "kept"


def nobody() -> int:
    """A port at which nobody answers."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


ADDRESSES = {
    "by-git": "git+http://127.0.0.1:{port}/some/by-git.git",
    "by-git-at": "by-git-at @ git+http://127.0.0.1:{port}/some/by-git-at@main",
    "editable": "-e git+http://127.0.0.1:{port}/some/other.git#egg=editable",
    "archived": "http://127.0.0.1:{port}/some/archived/archive/main.zip",
    "by-name": "by-name @ http://127.0.0.1:{port}/by-name-1.0.tar.gz",
    "by-path": "by-path @ file:///nowhere/by-path",
    "by-hg": "hg+http://127.0.0.1:{port}/some/by-hg",
}


@pytest.mark.slow
def test_an_address_is_never_replaced_by_the_index_s_package_of_that_name(
    index: Index, project: Path, marker: Path
) -> None:
    """One environment for all: each name is judged by itself."""
    for name in ADDRESSES:
        attack = f"{trap(marker, 9)}\nfrom setuptools import setup\nsetup(name={name!r}, version='9.0')\n"
        sources(index.files, name, "9.0", {"setup.py": attack})
        wheel(index.files, name, "8.0")
    wheel(index.files, "needs-them", "1.0", tuple(ADDRESSES))
    index.publish()
    lines = [line.format(port=nobody()) for line in ADDRESSES.values()]
    path = requirements(project, "\n".join([*lines, "filler==22.1", "needs-them", ""]))
    made = build_full_environment(path, (), None)
    assert {"filler", "needs-them"} <= installed(made).keys()
    for name in ADDRESSES:
        assert name not in installed(made)
        assert name in made.differing
        ((what, why),) = [(what, why) for what, why in told(made).items() if what.startswith(f"{name} from ")]
        assert "127.0.0.1" in what or "nowhere" in what
        assert why.startswith("not installed in this environment; code that imports it can't be judged")
        files = (f"/files/{name}-", f"/files/{name.replace('-', '_')}-", f"/simple/{name}/")
        assert not [path for path in index.asked if path.startswith(files)]
    assert existing_environment(path, (), None) == made


@pytest.mark.slow
def test_with_takes_the_index_s_package_where_the_user_says_so(index: Index, project: Path) -> None:
    wheel(index.files, "coolpkg", "8.0")
    index.publish()
    path = requirements(project, f"git+http://127.0.0.1:{nobody()}/some/coolpkg.git\nfiller==22.1\n")
    made = build_full_environment(path, ("coolpkg",), None)
    assert installed(made)["coolpkg"] == "8.0"
    assert made.skipped == ()


def git(*words: str, cwd: Path) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env={**os.environ, **who})


def repository(index: Index, name: str, files: dict[str, str]) -> str:
    """A repository that the index's server has too; its address."""
    work = index.folder.parent / f"{name}-work"
    work.mkdir()
    for file, text in files.items():
        (work / file).write_text(text)
    git("init", "-q", "-b", "main", cwd=work)
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "first", cwd=work)
    git("tag", "v1.5", cwd=work)
    git("clone", "-q", "--bare", str(work), str(index.folder / f"{name}.git"), cwd=work)
    git("update-server-info", cwd=index.folder / f"{name}.git")
    return f"git+{index.address}/{name}.git"


@pytest.mark.slow
def test_a_repository_that_can_be_reached_is_built_confined(index: Index, project: Path, marker: Path) -> None:
    port = int(index.address.rpartition(":")[2])
    revisions = {"newest": "", "tagged": "@v1.5", "branch": "@main"}
    lines = []
    for name, revision in revisions.items():
        wheel(index.files, name, "8.0")
        lines.append(repository(index, name, in_tree(name, "1.5", trap(marker, port))) + revision)
    index.publish()
    made = build_full_environment(requirements(project, "\n".join([*lines, "filler==22.1", ""])), (), None)
    for name in revisions:
        assert installed(made)[name] == "1.5"
        assert name not in made.differing
        assert any(
            "built from source on this machine, in a sandbox" in note.en and f"{name} 1.5" in note.en
            for note in made.notes
        )
    assert "/from-the-build" not in index.asked


@pytest.mark.slow
def test_what_is_no_repository_is_missing(index: Index, project: Path, marker: Path) -> None:
    own = repository(index, "coolpkg", in_tree("coolpkg", "1.5"))
    addresses = {
        "no-revision": f"{own}@v9",
        "a-file": f"git+file:///{index.folder / 'coolpkg.git'}",
        "a-command": f"git+ext::touch {marker}",
    }
    lines = [f"{name} @ {address}" for name, address in addresses.items()]
    made = build_full_environment(requirements(project, "\n".join([*lines, "filler==22.1", ""])), (), None)
    assert "filler" in installed(made)
    for name in addresses:
        assert name not in installed(made)
        assert name in made.differing


@pytest.mark.slow
def test_an_archive_and_a_wheel_of_the_web_are_what_they_are(index: Index, project: Path, marker: Path) -> None:
    web = index.folder / "web"
    web.mkdir()
    sources(web, "an-archive", "2.0", in_tree("an-archive", "2.0", trap(marker, 9)))
    wheel(web, "a-wheel", "3.0")
    text = f"an-archive @ {index.address}/web/an_archive-2.0.tar.gz\n"
    text += f"{index.address}/web/a_wheel-3.0-py3-none-any.whl\nfiller==22.1\n"
    made = build_full_environment(requirements(project, text), (), None)
    assert {name: installed(made)[name] for name in ("an-archive", "a-wheel")} == {
        "an-archive": "2.0",
        "a-wheel": "3.0",
    }
    assert made.differing == ()


@pytest.mark.slow
def test_pyproject_s_sources_count_as_addresses(index: Index, project: Path) -> None:
    wheel(index.files, "coolpkg", "8.0")
    index.publish()
    path = project / "pyproject.toml"
    path.write_text(
        '[project]\nname = "x"\ndependencies = ["coolpkg>=1", "filler==22.1"]\n'
        f'[tool.uv.sources]\ncoolpkg = {{git = "http://127.0.0.1:{nobody()}/coolpkg"}}\n'
    )
    made = build_full_environment(path, (), None)
    assert "coolpkg" not in installed(made)
    assert "coolpkg" in made.differing


@pytest.mark.slow
@pytest.mark.parametrize("means", ["namespaces", "landlock"])
def test_a_package_without_wheels_is_built_confined(
    means: str, index: Index, project: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_CONFINEMENT", means)
    port = int(index.address.rpartition(":")[2])
    setup = "from setuptools import setup\nsetup(name='only-sources', version='1.2', py_modules=['only_sources'])\n"
    newer = f'[build-system]\nrequires = ["setuptools>={metadata.version("setuptools")}"]\n'
    files = {"setup.py": trap(marker, port) + setup, "only_sources.py": "", "pyproject.toml": newer}
    wheel_of_installed(index.files, "setuptools")
    sources(index.files, "only-sources", "1.2", files)
    sources(index.files, "only-sources", "2.0", {"setup.py": "raise SystemExit('too new')"})
    wheel(index.files, "asks", "1.0", ("only-sources<2",))
    index.publish()
    made = build_full_environment(requirements(project, "asks\nfiller==22.1\n"), (), None)
    assert installed(made)["only-sources"] == "1.2"
    assert made.differing == ()
    assert any(note.en.endswith("in a sandbox: only-sources 1.2") for note in made.notes)
    assert "/from-the-build" not in index.asked


@pytest.mark.slow
def test_a_newer_release_without_wheels_is_not_built_where_an_older_one_has_one(
    index: Index, project: Path, marker: Path
) -> None:
    wheel(index.files, "partly", "1.0")
    sources(index.files, "partly", "2.0", in_tree("partly", "2.0", trap(marker, 9)))
    index.publish()
    made = build_full_environment(requirements(project, "partly\nfiller==22.1\n"), (), None)
    assert installed(made)["partly"] == "1.0"


@pytest.mark.slow
@pytest.mark.parametrize(("requested", "taken"), [("kernels==1.0", "1.0"), ("kernels<2", "2.0")])
def test_only_a_pinned_release_is_compiled_where_a_later_one_has_a_wheel(
    index: Index, project: Path, requested: str, taken: str
) -> None:
    sources(index.files, "kernels", "1.0", {**in_tree("kernels", "1.0"), "csrc/adam.cu": "int x;"})
    wheel(index.files, "kernels", "2.0")
    index.publish()
    made = build_full_environment(requirements(project, f"{requested}\nfiller==22.1\n"), (), None)
    assert installed(made)["kernels"] == taken
    said = "it is compiled, and a later release has a wheel" in " ".join(told(made).values())
    assert said == (taken == "2.0")


@pytest.mark.slow
def test_a_build_that_fails_is_one_line(index: Index, project: Path) -> None:
    sources(index.files, "broken", "1.0", in_tree("broken", "1.0", "raise RuntimeError('no nvcc was found')"))
    index.publish()
    made = build_full_environment(requirements(project, "broken==1.0\nfiller==22.1\n"), (), None)
    assert "broken" not in installed(made)
    why = told(made)["broken==1.0"]
    assert "its build failed: RuntimeError: no nvcc was found" in why
    assert "\n" not in why


@pytest.mark.slow
@pytest.mark.parametrize(
    "does",
    [
        "import shutil; shutil.rmtree(folder, ignore_errors=True)",
        "open(folder + '/broken-1.0-py3-none-any.whl', 'wb').write(b'PK\\x05\\x06' + b'\\xff' * 18)",
    ],
    ids=["removes the folder", "writes what is no wheel"],
)
def test_a_build_that_leaves_no_wheel_is_one_line(index: Index, project: Path, does: str) -> None:
    backend = f"def build_wheel(folder, *settings, **named):\n    {does}\n    return 'broken'\n"
    sources(index.files, "broken", "1.0", {**in_tree("broken", "1.0"), "backend.py": backend})
    index.publish()
    made = build_full_environment(requirements(project, "broken==1.0\nfiller==22.1\n"), (), None)
    assert "broken" not in installed(made)
    why = told(made)["broken==1.0"]
    assert "its build" in why, why
    assert "\n" not in why


@pytest.mark.slow
def test_with_builds_confined_too(index: Index, project: Path, marker: Path) -> None:
    sources(index.files, "only-sources", "0.3", in_tree("only-sources", "0.3", trap(marker, 9)))
    sources(index.files, "broken", "1.0", in_tree("broken", "1.0", "raise RuntimeError('no nvcc was found')"))
    index.publish()
    made = build_overlay(("only-sources==0.3",))
    assert str(made.versions["only-sources"]) == "0.3"
    assert any("built from source on this machine, in a sandbox" in note.en for note in made.notes)
    assert build_overlay(("only-sources==0.3",)) == made
    with pytest.raises(UserError, match=r"broken==1.0 could not be installed: its build failed: RuntimeError: no nvcc"):
        build_overlay(("broken==1.0",))
    with pytest.raises(UserError, match=r"no only-sources==0.4 for Python .*: the nearest are 0.3"):
        build_overlay(("only-sources==0.4",))


def test_without_means_to_confine_nothing_is_built(
    index: Index, project: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources(index.files, "only-sources", "0.3", in_tree("only-sources", "0.3", trap(marker, 9)))
    index.publish()
    monkeypatch.setenv("GONOGO_CONFINEMENT", "none")
    with pytest.raises(UserError, match="--unconfined"):
        build_overlay(("only-sources==0.3",))


@pytest.mark.slow
def test_lines_that_name_an_index_are_said_and_not_followed(index: Index, project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with served(tmp_path / "other") as other:
        wheel(other.files, "filler", "99.0")
        other.publish()
        text = f"--extra-index-url {other.address.replace('//', '//me:secret@')}/simple\n-f {other.address}/files\n"
        made = build_full_environment(requirements(project, f"{text}--pre\nfiller\nmsgspec\n"), (), None)
        assert other.asked == []
    assert installed(made)["filler"] == "22.1"
    said = [note.en for note in made.notes if note.en.startswith("ignored: ")]
    assert [f":{line}: " in note for line, note in enumerate(said, 1)] == [True] * 3
    assert "secret" not in str(made)


@pytest.mark.slow
def test_nothing_that_a_wheel_brings_runs_while_an_environment_is_made(
    index: Index, project: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(index.files, "with-pth", "1.0")
    with ZipFile(index.files / "with_pth-1.0-py3-none-any.whl", "a") as file:
        file.writestr("with_pth.pth", f"import os; open({str(marker)!r}, 'w')\n")
        file.writestr("sitecustomize.py", f"open({str(marker)!r}, 'w')\n")
        file.writestr("with_pth-1.0.dist-info/entry_points.txt", "[console_scripts]\nits-command = with_pth:main\n")
    index.publish()
    monkeypatch.setenv("UV_NO_CACHE", "1")
    made = build_full_environment(requirements(project, "with-pth\nfiller==22.1\n"), (), None)
    assert "with-pth" in installed(made)
    assert made.python is not None
    head = (made.python.parent / "its-command").read_text().splitlines()[:2]
    assert head[0] == "#!/bin/sh"
    assert sys.executable not in "".join(head)


@pytest.mark.slow
def test_pip_is_not_taken_from_the_project_s_folder(index: Index, project: Path, marker: Path) -> None:
    for name in ("pip", "json", "logging", "tempfile", "uv"):
        (project / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    assert "filler" in installed(build_full_environment(requirements(project, "filler==22.1\n"), (), None))
    wheel(index.files, "another", "1.0")
    index.publish()
    assert str(build_overlay(("another==1.0",)).versions["another"]) == "1.0"


def test_installers_get_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"PIP_INDEX_URL": "https://mirror/simple", "UV_INDEX_MINE_PASSWORD": "p", "https_proxy": "http://proxy"}
    dropped = dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PYTHONPATH"), "t")
    dropped |= dict.fromkeys(("UV_PUBLISH_TOKEN", "UV_NO_BINARY", "PIP_TARGET", "PIP_NO_BINARY"), "t")
    for name, value in {**kept, **dropped}.items():
        monkeypatch.setenv(name, value)
    found = installer_environment()
    assert {name: found.get(name) for name in kept} == kept
    assert found.keys() & dropped.keys() == set()


# -- the user's word


def asked_for(project: Path, *, yes: bool = False) -> PackageOverlay:
    return packages_for(project / "requirements.txt", (), None, lambda _text: None, yes=yes)


def forget_environments(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "xdg_cache_home" / "gonogo" / "environments")
    consent._CONFIRMED_PROJECTS.clear()


@pytest.mark.slow
def test_without_a_terminal_nothing_is_installed_unless_it_was_agreed_to(
    index: Index, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requirements(project, "filler==22.1\n")
    with pytest.raises(InstallNotConfirmed) as error:
        asked_for(project)
    assert "packages that are not installed (1)" in error.value.text.en
    assert "add --yes" in error.value.text.en
    assert "\n" not in error.value.text.en
    made = (tmp_path / "xdg_cache_home" / "gonogo" / "environments").iterdir()
    assert [one.name for one in made if one.is_dir()] == []
    assert "filler" in installed(asked_for(project, yes=True))
    assert "filler 22.1" in capsys.readouterr().err
    forget_environments(tmp_path)
    assert "filler" in installed(asked_for(project))  # as agreed to
    requirements(project, "filler==22.1\nmsgspec\n")
    forget_environments(tmp_path)
    with pytest.raises(InstallNotConfirmed):
        asked_for(project)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "agreed"), [("\n", True), ("y\n", True), ("n\n", False), ("", False)])
def test_at_a_terminal_the_user_is_asked(
    answer: str,
    agreed: bool,
    index: Index,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    consent._CONFIRMED_PROJECTS.clear()
    monkeypatch.setattr(prompts, "_is_terminal", lambda _stream: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    address = f"git+http://127.0.0.1:{nobody()}/some/coolpkg"
    requirements(project, f"--pre\nfiller==22.1\ncoolpkg @ {address}\n")
    if agreed:
        assert "filler" in installed(asked_for(project))
    else:
        with pytest.raises(InstallNotConfirmed, match="--environment none"):
            asked_for(project)
    said = capsys.readouterr().err
    assert "from 127.0.0.1: filler 22.1" in said
    assert f"coolpkg from {address}: not installed in this environment" in said
    assert "requirements.txt:1: --pre" in said
    assert "Install these packages (1)? [Y/n]" in said


def test_what_the_user_names_is_not_asked_for(index: Index, project: Path) -> None:
    wheel(index.files, "another", "1.0")
    index.publish()
    assert packages_for(None, ("another==1.0",), None, lambda _text: None).versions.keys() == {"another"}


def test_a_display_is_paused_while_the_user_is_told() -> None:
    done: list[str] = []

    @contextlib.contextmanager
    def pause() -> Iterator[None]:
        done.append("paused")
        yield
        done.append("goes on")

    with prompts.paused_during_prompts(pause):
        prompts.print_lines([Text("a", "甲")])
    prompts.print_lines([Text("b", "乙")])
    assert done == ["paused", "goes on"]


def test_a_build_that_sees_own_packages_gets_what_they_break(tmp_path: Path) -> None:
    pytest_release = metadata.version("pytest")
    rules = f"pytest<{pytest_release}\npackaging\nnot-installed-here<1\nmsgspec<0.1; python_version < '3'\n"
    (tmp_path / "requires.txt").write_text(f"{rules}\n[dev]\nruff<0.1\n")
    with tarfile.open(tmp_path / "old-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "requires.txt", "old-1.0/old.egg-info/requires.txt")
    assert conflicting_requirements(tmp_path / "old-1.0.tar.gz") == [f"pytest<{pytest_release}"]
    assert conflicting_requirements(tmp_path / "requires.txt") == []
