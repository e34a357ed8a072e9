"""The file system of a world: all files of this machine, under a layer that takes the changes made by programs.

In a user namespace, overlayfs can't be mounted over a folder that contains another mount. Folders above a mount point
are therefore rebuilt, one level at a time, and each folder below that contains none gets one overlay. ``layer/tree``
mirrors the root folder: it is the upper directory of every overlay, and contains the rebuilt folders themselves.
``layer/root`` is a bind mount of it, at which everything else is mounted, so that upper directories stay reachable.
"""

import errno
import os
import stat

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# System folders: mounted anew, or read-only.
_REBUILT_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_REMOVABLE_MEDIA_PREFIXES = ("/run/media/", "/run/mount/")
_PSEUDO_FILE_SYSTEMS = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "pstore",
     "bpf", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "efivarfs", "selinuxfs", "rpc_pipefs", "nsfs", "ramfs",
     "fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal"}
)  # fmt: skip
_PROC_HIDDEN = ("kcore", "keys", "key-users", "timer_list", "latency_stats", "kmsg", "sched_debug")
_SYS_HIDDEN = ("firmware", "kernel/debug", "kernel/tracing", "fs/bpf", "fs/pstore")
_DEVICE_FILES = ("null", "zero", "full", "random", "urandom", "tty")
_MAX_COPIED_BYTES = 1 << 20
_MAX_FOLDERS = 4000
_REBUILT_ATTRIBUTE = "user.gonogo.rebuilt"
"""Extended attribute of a rebuilt folder, which has an entry for everything visible in it."""
_MAX_ENTRIES = 512
"""In a rebuilt folder with more entries, those without mount points below are mounted read-only."""


class LayerUnsupported(OSError):
    """The layer's folder can't hold overlayfs changes; another file system may."""


class FileTree:
    """Builds the root folder that programs see, at ``layer/root``."""

    def __init__(self, layer: str, hidden_paths: list[str], own: list[str], notes: list[str]) -> None:
        self.tree = layer + "/tree"
        self.root = layer + "/root"
        self._layer = layer
        self._work = layer + "/work"
        self._empty = layer + "/empty"
        self._hidden = frozenset(hidden_paths)
        self._notes = notes
        self._to_write = _foreign_folders(own)
        self._overlays = 0
        self._mounted = _mount_points()

    def build_tree(self) -> None:
        """Mount everything except :data:`_REBUILT_FOLDERS`."""
        for folder in (self._work, self.tree, self.root, self._empty):
            os.makedirs(folder, exist_ok=True)
        self._try_layer()
        kernel.bind_mount(self.tree, self.root)
        self._mount_folder("/")
        for path, kind in self._mounted.items():
            if path.startswith(_REMOVABLE_MEDIA_PREFIXES) and kind not in _PSEUDO_FILE_SYSTEMS and os.path.isdir(path):
                os.makedirs(self.tree + path, exist_ok=True)
                self._mount_overlay(path)

    def _try_layer(self) -> None:
        """Raise LayerUnsupported if the layer's file system can't be an overlay's upper directory."""
        trial = self._layer + "/trial"
        lower, upper, seen = trial + "/lower", trial + "/upper", trial + "/seen"
        for folder in (lower + "/folder", upper, trial + "/work", seen):
            os.makedirs(folder)
        for name in ("/file", "/folder/file"):
            os.close(os.open(lower + name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        try:
            _mount_overlayfs(seen, [lower], upper, trial + "/work")
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

    def _mount_folder(self, path: str) -> None:
        """Mount an overlay over a folder, or rebuild it if something is mounted in it."""
        inside = path.rstrip("/") + "/"
        if not any(point.startswith(inside) for point in self._mounted):
            self._mount_overlay(path)
            return
        os.makedirs(self.tree + path, exist_ok=True)
        _copy_metadata(path, self.tree + path)
        names: dict[str, str] = {}
        # If an earlier world rebuilt the folder, entries missing from its tree were deleted there.
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
            self._mount_entry(source, shown, is_read_only=len(names) > _MAX_ENTRIES and not busy)

    def _mount_entry(self, source: str, visible_path: str, is_read_only: bool) -> None:
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
                # An earlier world's tree contains only the empty mount point.
                self._show_read_only(visible_path if os.path.isdir(visible_path) else source, target)
            else:
                self._mount_folder(visible_path)
        elif visible_path in self._hidden:  # a credential must not be copied; it is blanked afterwards
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        elif stat.S_ISREG(state.st_mode):
            _copy_or_bind(source, target, state)

    def _mount_overlay(self, path: str) -> None:
        """Mount an overlay over a folder; where that isn't permitted, show the folder read-only."""
        upper, target = self.tree + path, self.root + path
        begun = os.path.isdir(upper)
        os.makedirs(upper, exist_ok=True)
        if not _is_folder(path):  # exists only in this world's tree
            return
        if not begun:
            _copy_metadata(path, upper)
        for folder in self._to_write:
            if folder.startswith(path.rstrip("/") + "/"):
                self._create_upper_folder(folder)
        self._overlays += 1
        work = f"{self._work}/{self._overlays}"
        os.makedirs(work, exist_ok=True)
        try:
            _mount_overlayfs(target, [path], upper, work)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):  # no overlay is permitted at all
                raise
            self._show_read_only(path, target)

    def _create_upper_folder(self, path: str) -> None:
        """Create a folder in the upper directory, owned by this user.

        Before something in a folder changes, overlayfs copies the folder with its owner. That fails for an owner or
        group unknown to the user namespace, as in a folder that belongs to a group on a cluster.
        """
        made = self.tree + path
        if os.path.isdir(made):
            return
        os.makedirs(made)
        _copy_metadata(path, made)
        if not os.access(path, os.W_OK):
            os.chmod(made, stat.S_IMODE(os.stat(made).st_mode) & ~0o200)

    def _show_read_only(self, source: str, target: str) -> None:
        """Mount a folder read-only.

        An overlay is preferred: sockets and pipes in it don't connect to processes outside.
        """
        try:
            try:
                _mount_overlayfs(target, [source, self._empty])
            except OSError:
                kernel.bind_mount(source, target)
                kernel.make_read_only(target)
            self._notes.append(f"{source} can be read only")
        except OSError as error:
            self._notes.append(f"{source} is left out ({error.strerror})")

    def mount_system_folders(self) -> None:
        """Mount ``/dev``, ``/run``, ``/sys`` and ``/proc``; the last needs a PID namespace."""
        root = self.root
        _mount_file_system(root + "/dev", "tmpfs", "mode=755,size=64k,nr_inodes=1k")
        for name in _DEVICE_FILES:
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
        kernel.bind_mount("/sys", root + "/sys", recursive=True)
        kernel.make_read_only(root + "/sys", recursive=True)
        for name in _SYS_HIDDEN:
            if os.path.isdir(f"{root}/sys/{name}"):
                _mount_file_system(f"{root}/sys/{name}", "tmpfs", "mode=755,size=4k")
        _mount_file_system(root + "/proc", "proc", None)
        self._protect_proc(root + "/proc")

    def _protect_proc(self, proc: str) -> None:
        """Make kernel files that root could write read-only, since they are not namespaced."""
        for entry in os.scandir(proc):
            if entry.name.isdecimal() or entry.is_symlink():
                continue
            if entry.name in _PROC_HIDDEN:
                kernel.bind_mount("/dev/null", entry.path)
            elif entry.is_dir() or entry.stat().st_mode & 0o222:
                kernel.bind_mount(entry.path, entry.path)
                kernel.make_read_only(entry.path)

    def bind_folder(self, path: str, is_read_only: bool = False) -> None:
        """Bind-mount one of gonogo's folders, so that writes go to the real one."""
        target = self.root + path
        os.makedirs(target, exist_ok=True)
        kernel.bind_mount(path, target)
        if is_read_only:
            kernel.make_read_only(target)

    def hide(self, path: str) -> None:
        """Hide a path behind an empty folder or an empty file."""
        target = self.root + path
        if os.path.islink(target) or not os.path.exists(target):
            return
        if os.path.isdir(target):
            kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=16m")
        else:
            kernel.bind_mount("/dev/null", target)

    def pivot_root(self) -> None:
        """Make ``layer/root`` the root; the real one is no longer accessible to this process and its children."""
        os.chdir(self.root)
        kernel.call("pivot_root", b".", b".")
        kernel.unmount(".")
        os.chdir("/")


def _mount_points() -> dict[str, str]:
    """The file system type of each mount point, by path."""
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


def _mount_overlayfs(target: str, lower_dirs: "Iterable[str]", upper_dir: str = "", work_dir: str = "") -> None:
    """Mount an overlay. Folders are given as ``/proc/self/fd`` paths, which need no escaping and are short."""
    open_folders: list[int] = []

    def open_and_name(path: str) -> str:
        open_folders.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
        return f"/proc/self/fd/{open_folders[-1]}"

    try:
        options = "lowerdir=" + ":".join(open_and_name(folder) for folder in lower_dirs)
        if upper_dir:
            options += f",upperdir={open_and_name(upper_dir)},workdir={open_and_name(work_dir)}"
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
    """Whether a path is a folder itself, not a link to one, which a program may have created."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _has_attribute(path: str, attribute: str) -> bool:
    try:
        return os.getxattr(path, attribute) == b"y"
    except OSError:
        return False


def _foreign_folders(own: list[str]) -> list[str]:
    """Folders owned by other users or groups, above ``own`` and below its first one; parents come before children."""
    user, group = os.getuid(), os.getgid()
    if user == 0:  # root's namespace maps all users
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
    """Copy mode, owner and times of a folder, since those of the upper directory are visible."""
    try:
        state = os.stat(source)
        os.chmod(target, stat.S_IMODE(state.st_mode))
        if os.geteuid() == 0:
            os.chown(target, state.st_uid, state.st_gid)
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    except OSError:
        pass  # an owner unknown to this user namespace: it stays this user's


def _copy_or_bind(source: str, target: str, state: os.stat_result) -> None:
    if os.path.lexists(target):
        return
    if state.st_size > _MAX_COPIED_BYTES:
        _bind_file(source, target)
        kernel.make_read_only(target)
        return
    try:
        with open(source, "rb") as reading, open(target, "wb") as writing:
            writing.write(reading.read())
        os.chmod(target, stat.S_IMODE(state.st_mode))
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    except OSError:
        pass  # this user can't read the file


def _bind_file(source: str, target: str) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    kernel.bind_mount(source, target)


def _mount_file_system(target: str, kind: str, options: str | None) -> None:
    os.makedirs(target, exist_ok=True)
    flags = kernel.MS_NOSUID | (kernel.MS_NOEXEC if kind in ("proc", "devpts") else 0)
    kernel.mount(kind, target, kind, flags | (kernel.MS_NODEV if kind == "proc" else 0), options)
