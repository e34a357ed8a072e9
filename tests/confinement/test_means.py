"""Which means is chosen, and why not a better one: kernels and containers that refuse something are imitated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from users import HERE, SOURCES, USERS, user_called

FORCED = "GONOGO_CONFINEMENT"
Needs = Callable[[str, str], None]

# What a kernel or a container refuses, each by what a real one does: a filter that answers EPERM, mounts that mask.
CHOSEN = r"""
import ctypes, fcntl, json, os, struct, subprocess, sys, tempfile, threading, time
from pathlib import Path
from gonogo.confinement import confinement as module
from gonogo.confinement.inside import kernel, seccomp
from gonogo.finding import UserError


def allow_to(name):  # new user namespaces, as a profile of AppArmor allows them to one program
    program = seccomp.BpfProgram(0x7FFF0000)
    for numbers in ((272, 97), (56, 220)):
        program.add_rule(numbers, 0x7FC00000, (0, 0, "any bit", kernel.CLONE_NEWUSER))
    listener = []
    threading.Thread(target=lambda: answer_for(name, listener), daemon=True).start()
    listener.append(program.install(with_listener=True))

def answer_for(name, listener):
    while not listener:
        time.sleep(0.01)
    while True:
        message = bytearray(80)
        fcntl.ioctl(listener[0], 0xC0502100, message)
        identity, pid = struct.unpack_from("=QI", message)
        own = os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name
        response = struct.pack("=QqiI", identity, 0, 0 if own else -1, 1 if own else 0)
        fcntl.ioctl(listener[0], 0xC0182101, bytearray(response))

refused = json.loads(sys.argv[1])
if "elsewhere" in refused:
    module._temporary_folders = lambda: iter(())
if "directly" in refused:  # no filter can be in place: a setuid program would be none behind it
    module.Confinement._means_candidates = lambda self: iter([("namespaces", module._bubblewrap()), ("landlock", ())])
calls = {"unshare": (272, 97), "mount": (165, 40), "landlock": (444, 444), "mount_setattr": (442, 442)}
program = seccomp.BpfProgram(0x7FFF0000)
for name in refused:
    if name == "overlay":  # fails for overlay alone, which no filter sees: a kernel before 5.11
        continue
    if name in calls:
        program.add_rule(calls[name], 0x00050000 | (38 if name in ("landlock", "mount_setattr") else 1))
if "directly" not in refused:
    program.install()
if "user namespaces but by bwrap" in refused:
    allow_to("bwrap")
scratch = Path(tempfile.mkdtemp(dir=sys.argv[2]))
confinement = module.Confinement(scratch)
answer = {}
try:
    with confinement.world() as world:
        shared = str(confinement.shared)
        script = f"cat /proc/self/status > /dev/null && echo ran > {shared}/file"
        done = subprocess.run(world.command(["bash", "-c", script]), env=world.environment({"PATH": os.defpath}),
                              cwd="/", capture_output=True, text=True)
        answer = {"means": world.spec.means, "status": done.returncode, "why": confinement.reasons,
                  "namespace_helper": confinement.namespace_helper,
                  "layer": str(world.spec.folder), "said": done.stderr}
except UserError as error:
    answer = {"error": str(error)}
folder = answer.get("layer", "")
del confinement
print(json.dumps({**answer, "left": bool(folder) and not folder.startswith(sys.argv[2]) and os.path.exists(folder)}))
"""


def chosen(name: str, *refused: str, setup: str = "") -> dict[str, str]:
    """``setup``: a shell script that is run as root in a mount namespace of its own; ``$F`` is the scratch's folder."""
    with user_called(name) as user:
        words = [*user.words, "-c", CHOSEN, json.dumps(refused), str(user.folder)]
        if setup:
            words = ["unshare", "-m", "bash", "-ec", f'{setup}\nexec "$@"', "bash", *words]
        done = subprocess.run(
            words,
            env={**user.environment, "F": str(user.folder)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, str] = json.loads(done.stdout)
        assert not answer["left"]
        return answer


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount something to imitate this")
    if subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True
    ).returncode:
        pytest.skip("nothing can be mounted here")


@pytest.mark.parametrize("name", USERS)
def test_the_best_means_is_chosen(needs: Needs, name: str) -> None:
    needs("namespaces", name)
    answer = chosen(name)
    assert (answer["means"], answer["status"], answer["why"]) == ("namespaces", 0, [])


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize(("refused", "reason"), [("unshare", "unshare: Operation not permitted"), ("mount", "mount")])
def test_a_container_that_allows_no_namespaces(needs: Needs, name: str, refused: str, reason: str) -> None:
    """Docker's filter refuses unshare and mount."""
    needs("landlock", name)
    answer = chosen(name, refused)
    assert (answer["means"], answer["status"]) == ("landlock", 0), answer
    assert all(why.startswith(("namespaces: ", "namespaces by bwrap: ")) for why in answer["why"])
    assert reason in answer["why"][0]


BY_BWRAP = "user namespaces but by bwrap"


def needs_bwrap() -> str:
    """The path of bubblewrap, that of a plain program."""
    path = shutil.which("bwrap")
    if path is None or os.stat(path).st_mode & 0o4000:
        pytest.skip("bubblewrap is not here, or setuid")
    return path


def test_bubblewrap_makes_the_user_namespace_where_it_alone_may(needs: Needs) -> None:
    """As Ubuntu has it with a profile of AppArmor for this program."""
    bwrap = needs_bwrap()
    needs("namespaces", "ordinary")
    answer = chosen("ordinary", BY_BWRAP)
    assert (answer["means"], answer["status"]) == ("namespaces", 0), answer
    assert os.path.samefile(answer["namespace_helper"], bwrap)
    assert answer["why"] == ["namespaces: unshare: Operation not permitted"]


@pytest.mark.usefixtures("root")
def test_bubblewrap_that_has_no_rights_to_hand_on(needs: Needs) -> None:
    """setuid it leaves its program no capabilities, and says so; with Ubuntu's own profile mounts fail in it."""
    needs_bwrap()
    needs("landlock", "ordinary")
    setup = 'mkdir "$F/b" && cp $(which bwrap) "$F/b/" && chmod 4755 "$F/b/bwrap" && export PATH="$F/b:$PATH"'
    answer = chosen("ordinary", "directly", setup=setup)
    assert (answer["means"], answer["status"], answer["namespace_helper"]) == ("landlock", 0, ""), answer
    assert "namespaces by bwrap: bwrap: --cap-add in setuid mode" in answer["why"][0]
    answer = chosen("ordinary", BY_BWRAP, "mount")
    assert (answer["means"], answer["status"], answer["namespace_helper"]) == ("landlock", 0, ""), answer
    assert answer["why"][1].startswith("namespaces by bwrap: ")


@pytest.mark.parametrize("name", USERS)
def test_neither_is_to_be_had(name: str) -> None:
    answer = chosen(name, "unshare", "landlock")
    assert "namespaces: unshare: Operation not permitted" in answer["error"]
    assert "landlock: " in answer["error"]
    assert "so none was run" in answer["error"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", USERS)
def test_a_container_that_masks_proc(needs: Needs, name: str) -> None:
    """Docker covers folders of /proc: then the kernel lets nobody mount another one in a user namespace."""
    needs("landlock", name)
    answer = chosen(
        name, setup="mount -t tmpfs -o ro none /proc/acpi 2>/dev/null || mount -t tmpfs -o ro none /proc/bus"
    )
    assert (answer["means"], answer["status"]) == ("landlock", 0), answer
    assert "mount proc" in answer["why"][0]
    assert "Operation not permitted" in answer["why"][0]


OVERLAY = (
    "mkdir -p /mnt && mount -t tmpfs none /mnt && mkdir /mnt/l /mnt/u /mnt/w && "
    'mount -t overlay o -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w "$F" && chmod 777 "$F"'
)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize(
    "setup", [OVERLAY, 'mount -t ramfs none "$F" && chmod 777 "$F"'], ids=["overlay", "no attributes"]
)
def test_another_place_for_the_layer(needs: Needs, name: str, setup: str) -> None:
    """In a container the temporary folder is an overlay itself."""
    needs("namespaces", name)
    answer = chosen(name, setup=setup)
    assert (answer["means"], answer["status"]) == ("namespaces", 0), answer
    assert "no layer can be kept in" in answer["why"][0]
    assert "gonogo-" in answer["layer"]


@pytest.mark.usefixtures("root")
def test_no_place_for_the_layer(needs: Needs) -> None:
    needs("landlock", "self")
    answer = chosen("self", "elsewhere", setup=OVERLAY)
    assert (answer["means"], answer["status"]) == ("landlock", 0), answer
    assert "no layer can be kept in" in answer["why"][0]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", USERS)
def test_temporary_files_in_memory(needs: Needs, name: str) -> None:
    needs("namespaces", name)
    answer = chosen(name, setup='mount -t tmpfs none "$F" && chmod 777 "$F"')
    assert (answer["means"], answer["status"], answer["why"]) == ("namespaces", 0, []), answer


def in_worlds(tmp_path: Path, project: Path, *scripts: str) -> subprocess.CompletedProcess[str]:
    """Run scripts in worlds of which each is above the one before, with something mounted in the project."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import os, subprocess, sys\nfrom pathlib import Path\n"
        "from gonogo.confinement.confinement import Confinement\n"
        "confinement, below = Confinement(Path(sys.argv[1])), []\n"
        "for script in sys.argv[3:]:\n"
        "    with confinement.world(below=below) as world:\n"
        "        environment = world.environment({'PATH': os.defpath})\n"
        "        subprocess.run(world.command(['bash', '-c', script]), env=environment, cwd=sys.argv[2])\n"
        "        below.append(world.tree)\n"
    )
    return subprocess.run(
        ["unshare", "-m", "bash", "-ec", f'mount -t tmpfs none "{project}/mounted"; exec "$@"', "bash", sys.executable,
         "-c", code, str(scratch), str(project), *scripts],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), str(HERE)]), FORCED: "namespaces"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("root")
def test_what_was_deleted_in_a_rebuilt_folder_stays_deleted(needs: Needs, tmp_path: Path) -> None:
    """A folder in which something is mounted is rebuilt entry by entry."""
    needs("namespaces", "self")
    project = tmp_path / "project"
    for folder in ("mounted", "folder"):
        (project / folder).mkdir(parents=True)
    (project / "folder" / "inner").write_text("mine\n")
    (project / "file").write_text("mine\n")
    (project / "kept").write_text("mine\n")
    scripts = (
        "rm file; rm -r folder/*; echo new > folder/new; echo new > added; echo x > mounted/one; mkdir more",
        "ls; ls folder mounted; rm added; echo two > file",
        "echo third; ls; cat file kept; cat mounted/one",
    )
    done = in_worlds(tmp_path, project, *scripts)
    assert done.stdout.split() == [
        "added", "folder", "kept", "more", "mounted", "folder:", "new", "mounted:", "one",
        "third", "file", "folder", "kept", "more", "mounted", "two", "mine", "x",
    ], done.stderr  # fmt: skip
    assert sorted(os.listdir(project)) == ["file", "folder", "kept", "mounted"]


@pytest.mark.usefixtures("root")
def test_a_large_rebuilt_folder_is_seen_by_later_worlds_too(needs: Needs, tmp_path: Path) -> None:
    """Its folders are shown for reading only, in each world as they really are."""
    needs("namespaces", "self")
    project = tmp_path / "project"
    for folder in ("mounted", "folder"):
        (project / folder).mkdir(parents=True)
    (project / "folder" / "inner").write_text("mine\n")
    for number in range(600):
        (project / f"file{number}").touch()
    look = "cat folder/inner; echo x > folder/new || echo refused"
    done = in_worlds(tmp_path, project, look, look)
    assert done.stdout.split() == ["mine", "refused"] * 2, done.stderr
