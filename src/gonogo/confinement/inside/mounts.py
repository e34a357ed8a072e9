"""The confined program's files: all that are here, and a layer over them that takes what the program changes.

Overlayfs can't be laid over a folder in which something else is mounted, when a user namespace asks for it. So folders
above a mount point are rebuilt, one level at a time, and each folder below that has none is laid over as a whole.
``layer/tree`` mirrors the root folder: it is the upper part of every overlay, and the rebuilt folders themselves.
``layer/root`` shows it, and all else is mounted there: an upper part has to be reached past what is mounted on it.
"""

import errno
import os
import stat

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Not files of the user's: made anew, or shown for reading only.
_REBUILT_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_REMOVABLE_MEDIA_PREFIXES = ("/run/media/", "/run/mount/")
_PSEUDO_FILE_SYSTEMS = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "pstore",
     "bpf", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "efivarfs", "selinuxfs", "rpc_pipefs", "nsfs", "ramfs",
     "fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal"}
)  # fmt: skip
_PROC_HIDDEN = ("kcore", "keys", "key-users", "timer_list", "latency_stats", "kmsg", "sched_debug")
_SYS_HIDDEN = ("firmware", "kernel/debug", "kernel/tracing", "fs/bpf", "fs/pstore")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_MAX_COPIED_BYTES = 1 << 20
_MAX_FOLDERS = 4000
_REBUILT_ATTRIBUTE = "user.gonogo.rebuilt"
"""Attribute of a rebuilt folder: it has a name for all that is seen there."""
_MAX_ENTRIES = 512
"""Of a rebuilt folder with more entries, those that no mount point lies below are shown for reading only."""


class LayerUnsupported(OSError):
    """What programs change can't be kept in the layer's folder; elsewhere it may be."""


class FileTree:
    """Puts the program's files together below ``layer/tree``."""

    def __init__(self, layer: str, hidden_paths: list[str], own: list[str], notes: list[str]) -> None:
        self.tree = layer + "/tree"
        self.root = layer + "/root"
        self._layer = layer
        self._work = layer + "/work"
        self._empty = layer + "/empty"
        self._hidden = frozenset(hidden_paths)
        self._notes = notes
        self._to_write = _folders_of_other_owners(own)
        self._overlays = 0
        self._mounted = _mount_points()

    def build_tree(self) -> None:
        """Everything but what :data:`_REBUILT_FOLDERS` names."""
        for folder in (self._work, self.tree, self.root, self._empty):
            os.makedirs(folder, exist_ok=True)
        self._try_layer()
        kernel.bind(self.tree, self.root)
        self._folder("/")
        for path, kind in self._mounted.items():
            if path.startswith(_REMOVABLE_MEDIA_PREFIXES) and kind not in _PSEUDO_FILE_SYSTEMS and os.path.isdir(path):
                os.makedirs(self.tree + path, exist_ok=True)
                self._laid_over(path)

    def _try_layer(self) -> None:
        """Raise NoLayer where the layer's file system can't keep what programs change (not every one can)."""
        trial = self._layer + "/trial"
        lower, upper, seen = trial + "/lower", trial + "/upper", trial + "/seen"
        for folder in (lower + "/folder", upper, trial + "/work", seen):
            os.makedirs(folder)
        for name in ("/file", "/folder/file"):
            os.close(os.open(lower + name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        try:
            _overlay(seen, [lower], upper, trial + "/work")
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES, errno.ENODEV):
                raise OSError(error.errno, f"overlayfs is refused in a user namespace: {error.strerror}") from None
            raise LayerUnsupported(error.errno, f"no layer can be kept in {self._layer}: {error.strerror}") from None
        try:
            os.unlink(seen + "/file")
            os.unlink(seen + "/folder/file")
            os.rmdir(seen + "/folder")
            os.mkdir(seen + "/folder")
            found = [*os.listdir(seen), *os.listdir(seen + "/folder")]
        except OSError as error:
            raise LayerUnsupported(error.errno, f"no layer can be kept in {self._layer}: {error.strerror}") from None
        finally:
            kernel.unmount(seen)
        if found != ["folder"]:
            raise LayerUnsupported(
                errno.EOPNOTSUPP, f"no layer can be kept in {self._layer}: what was deleted is still there"
            )

    def _folder(self, path: str) -> None:
        """Lay over a folder, or rebuild it where something is mounted in it."""
        inside = path.rstrip("/") + "/"
        if not any(point.startswith(inside) for point in self._mounted):
            self._laid_over(path)
            return
        os.makedirs(self.tree + path, exist_ok=True)
        _copy_metadata(path, self.tree + path)
        names: dict[str, str] = {}
        # An earlier world had rebuilt the folder too: what it has no more was deleted there.
        for place in (
            (self.tree + path,) if _has_attribute(self.tree + path, _REBUILT_ATTRIBUTE) else (path, self.tree + path)
        ):
            try:
                for entry in os.scandir(place):
                    names.setdefault(entry.name, entry.path)
            except OSError:
                continue
        if path != "/":
            os.setxattr(self.tree + path, _REBUILT_ATTRIBUTE, b"y")
        for name, source in names.items():
            shown = inside + name
            if shown in _REBUILT_FOLDERS:
                continue
            busy = shown in self._mounted or any(point.startswith(shown + "/") for point in self._mounted)
            self._entry(source, shown, is_read_only=len(names) > _MAX_ENTRIES and not busy)

    def _entry(self, source: str, visible_path: str, is_read_only: bool) -> None:
        target = self.root + visible_path
        kind = self._mounted.get(visible_path)
        if kind in _PSEUDO_FILE_SYSTEMS or kind == "autofs":
            if os.path.isdir(source):
                os.makedirs(target, exist_ok=True)
            return
        try:
            state = os.lstat(source)
        except OSError:
            return
        if stat.S_ISLNK(state.st_mode):
            if not os.path.lexists(target):
                os.symlink(os.readlink(source), target)
        elif stat.S_ISDIR(state.st_mode):
            if is_read_only:
                os.makedirs(target, exist_ok=True)
                # An earlier world's tree has only the place where the folder was mounted.
                self._show_read_only(visible_path if os.path.isdir(visible_path) else source, target)
            else:
                self._folder(visible_path)
        elif visible_path in self._hidden:  # a credential is not to be copied: it is blanked afterwards
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        elif stat.S_ISREG(state.st_mode):
            _copy_or_bind(source, target, state)

    def _laid_over(self, path: str) -> None:
        upper, target = self.tree + path, self.root + path
        begun = os.path.isdir(upper)
        os.makedirs(upper, exist_ok=True)
        if not _is_folder(path):  # the world begins with it
            return
        if not begun:
            _copy_metadata(path, upper)
        for folder in self._to_write:
            if folder.startswith(path.rstrip("/") + "/"):
                self._begin(folder)
        self._overlays += 1
        work = f"{self._work}/{self._overlays}"
        os.makedirs(work, exist_ok=True)
        try:
            _overlay(target, [path], upper, work)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):  # not allowed to: nothing of this can be had
                raise
            self._show_read_only(path, target)

    def _begin(self, path: str) -> None:
        """Make a folder in the upper part as this user's own.

        overlayfs copies a folder, with its owner, before something in it changes. One of an owner or a group that the
        user namespace doesn't know can't be copied: a project of a group's on a cluster.
        """
        made = self.tree + path
        if os.path.isdir(made):
            return
        os.makedirs(made)
        _copy_metadata(path, made)
        if not os.access(path, os.W_OK):
            os.chmod(made, stat.S_IMODE(os.stat(made).st_mode) & ~0o200)

    def _show_read_only(self, source: str, target: str) -> None:
        """Show a folder without a way to change it.

        By an overlay too where that can be had: through it no socket and no pipe leads to whoever else uses it.
        """
        try:
            try:
                _overlay(target, [source, self._empty])
            except OSError:
                kernel.bind(source, target)
                kernel.read_only(target)
            self._notes.append(f"{source} can be read only")
        except OSError as error:
            self._notes.append(f"{source} is left out ({error.strerror})")

    def mount_system_folders(self) -> None:
        """``/dev``, ``/run``, ``/sys`` and ``/proc``; the last needs a process namespace of its own."""
        root = self.root
        _mount_file_system(root + "/dev", "tmpfs", "mode=755,size=64k,nr_inodes=1k")
        for name in _DEVICES:
            if os.path.exists("/dev/" + name):
                _bind_file("/dev/" + name, root + "/dev/" + name)
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink("/proc/self/fd" + target, f"{root}/dev/{name}")
        _mount_file_system(root + "/dev/shm", "tmpfs", "mode=1777")
        _mount_file_system(root + "/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=620")
        os.symlink("pts/ptmx", root + "/dev/ptmx")
        _mount_file_system(root + "/run", "tmpfs", "mode=755")
        os.mkdir(root + "/run/lock")
        os.chmod(root + "/run/lock", 0o1777)
        user = f"{root}/run/user/{os.getuid()}"
        os.makedirs(user)
        os.chmod(user, 0o700)
        os.makedirs(root + "/sys", exist_ok=True)
        kernel.bind("/sys", root + "/sys", recursive=True)
        kernel.read_only(root + "/sys", recursive=True)
        for name in _SYS_HIDDEN:
            if os.path.isdir(f"{root}/sys/{name}"):
                _mount_file_system(f"{root}/sys/{name}", "tmpfs", "mode=755,size=4k")
        _mount_file_system(root + "/proc", "proc", None)
        self._protect_proc(root + "/proc")

    def _protect_proc(self, proc: str) -> None:
        """Of the kernel's files, what root could write can only be read: that reaches past every namespace."""
        for entry in os.scandir(proc):
            if entry.name.isdigit() or entry.is_symlink():
                continue
            if entry.name in _PROC_HIDDEN:
                kernel.bind("/dev/null", entry.path)
            elif entry.is_dir() or entry.stat().st_mode & 0o222:
                kernel.bind(entry.path, entry.path)
                kernel.read_only(entry.path)

    def show(self, path: str, is_read_only: bool = False) -> None:
        """Show a folder of gonogo's as it is: what is written there is really written."""
        target = self.root + path
        os.makedirs(target, exist_ok=True)
        kernel.bind(path, target)
        if is_read_only:
            kernel.read_only(target)

    def blank(self, path: str) -> None:
        """Show an empty folder, or an empty file, at a path."""
        target = self.root + path
        if os.path.islink(target) or not os.path.exists(target):
            return
        if os.path.isdir(target):
            kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=16m")
        else:
            kernel.bind("/dev/null", target)

    def enter(self) -> None:
        """Make the folder of all this the root; the real one is gone for this process and what it starts."""
        os.chdir(self.root)
        kernel.call("pivot_root", b".", b".")
        kernel.unmount(".")
        os.chdir("/")


def _mount_points() -> dict[str, str]:
    """Path of each mount point, and what kind of file system is seen there."""
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            path = fields[4]
            for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                path = path.replace(code, letter)
            kind = fields[fields.index("-") + 1]
            if path != "/":
                found[path] = kind
    return found


def _overlay(target: str, lower_dirs: "Iterable[str]", upper_dir: str = "", work_dir: str = "") -> None:
    """Mount folders over each other. Each is named by a descriptor: so no name has to be escaped, and none is long."""
    open_folders: list[int] = []

    def named(path: str) -> str:
        open_folders.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
        return f"/proc/self/fd/{open_folders[-1]}"

    try:
        options = "lowerdir=" + ":".join(named(folder) for folder in lower_dirs)
        if upper_dir:
            options += f",upperdir={named(upper_dir)},workdir={named(work_dir)}"
        options += ",userxattr"
        try:
            kernel.mount("overlay", target, "overlay", 0, options + (",volatile" if upper_dir else ""))
        except OSError as error:
            if not upper_dir or error.errno in (errno.EPERM, errno.EACCES):
                raise
            kernel.mount("overlay", target, "overlay", 0, options)  # kernels before 5.10 don't know "volatile"
    finally:
        for descriptor in open_folders:
            os.close(descriptor)


def _is_folder(path: str) -> bool:
    """Itself, and not by a link: a program may have put one there."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _has_attribute(path: str, attribute: str) -> bool:
    try:
        return os.getxattr(path, attribute) == b"y"
    except OSError:
        return False


def _folders_of_other_owners(own: list[str]) -> list[str]:
    """Folders on the way to ``own`` ones, and below the first, that are of others: those above come first."""
    user, group = os.getuid(), os.getgid()
    if user == 0:  # root's namespace knows all
        return []
    found: dict[str, None] = {}
    for folder in own:
        parts = folder.strip("/").split("/")
        places = ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]
        for place in places:
            _add_if_other_owner(place, user, group, found)
    left = _MAX_FOLDERS
    waiting = [folder for folder in own[:1] if folder != "/"]
    while waiting and left:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            if left and entry.is_dir(follow_symlinks=False):
                left -= 1
                _add_if_other_owner(entry.path, user, group, found)
                waiting.append(entry.path)
    return sorted(found)


def _add_if_other_owner(path: str, user: int, group: int, foreign_folders: "dict[str, None]") -> None:
    try:
        state = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(state.st_mode) and (state.st_uid != user or state.st_gid != group):
        foreign_folders[path] = None


def _copy_metadata(source: str, target: str) -> None:
    """Mode, owner and times of a folder: the upper one's are those that are seen."""
    try:
        state = os.stat(source)
        os.chmod(target, stat.S_IMODE(state.st_mode))
        if os.geteuid() == 0:
            os.chown(target, state.st_uid, state.st_gid)
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    except OSError:
        pass  # an owner that this user namespace doesn't know: it stays the user's


def _copy_or_bind(source: str, target: str, state: os.stat_result) -> None:
    if os.path.lexists(target):
        return
    if state.st_size > _MAX_COPIED_BYTES:
        _bind_file(source, target)
        kernel.read_only(target)
        return
    try:
        with open(source, "rb") as reading, open(target, "wb") as writing:
            writing.write(reading.read())
        os.chmod(target, stat.S_IMODE(state.st_mode))
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    except OSError:
        pass  # a file that this user can't read


def _bind_file(source: str, target: str) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    kernel.bind(source, target)


def _mount_file_system(target: str, kind: str, options: str | None) -> None:
    os.makedirs(target, exist_ok=True)
    flags = kernel.MS_NOSUID | (kernel.MS_NOEXEC if kind in ("proc", "devpts") else 0)
    kernel.mount(kind, target, kind, flags | (kernel.MS_NODEV if kind == "proc" else 0), options)
