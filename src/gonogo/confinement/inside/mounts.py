"""The confined program's files: all that are here, and a layer over them that takes what the program changes.

Overlayfs can't be laid over a folder in which something else is mounted, when a user namespace asks for it. So folders
above a mount point are rebuilt, one level at a time, and each folder below that has none is laid over as a whole.
``layer/tree`` mirrors the root folder: it is the upper part of every overlay, and the rebuilt folders themselves.
``layer/root`` shows it, and all else is mounted there: an upper part has to be reached past what is mounted on it.
"""

import os
import stat

import kernel

# Not files of the user's: made anew, or shown for reading only.
_OWN = ("/proc", "/sys", "/dev", "/run")
_DISKS_ELSEWHERE = ("/run/media/", "/run/mount/")
_NOT_FILES = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "pstore",
     "bpf", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "efivarfs", "selinuxfs", "rpc_pipefs", "nsfs", "ramfs",
     "fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal"}
)  # fmt: skip
_PROC_FOR_READING = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver")
_PROC_HIDDEN = ("kcore", "keys", "timer_list", "latency_stats", "kmsg", "sched_debug")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SMALL = 1 << 20
_MOST_ENTRIES = 512
"""Of a rebuilt folder with more entries, those that no mount point lies below are shown for reading only."""


class Files:
    """Puts the program's files together below ``layer/tree``."""

    def __init__(self, layer, notes):
        self.tree = layer + "/tree"
        self.root = layer + "/root"
        self._work = layer + "/work"
        self._notes = notes
        self._overlays = 0
        self._mounted = _mount_points()

    def put_together(self):
        """Everything but what :data:`_OWN` names."""
        os.makedirs(self._work, exist_ok=True)
        os.makedirs(self.tree, exist_ok=True)
        os.makedirs(self.root, exist_ok=True)
        kernel.bind(self.tree, self.root)
        self._folder("/")
        for path, kind in self._mounted.items():
            if path.startswith(_DISKS_ELSEWHERE) and kind not in _NOT_FILES and os.path.isdir(path):
                os.makedirs(self.tree + path, exist_ok=True)
                self._laid_over(path)

    def _folder(self, path):
        """Lay over a folder, or rebuild it where something is mounted in it."""
        inside = path.rstrip("/") + "/"
        if not any(point.startswith(inside) for point in self._mounted):
            self._laid_over(path)
            return
        os.makedirs(self.tree + path, exist_ok=True)
        _as(path, self.tree + path)
        names = {}
        for place in (path, self.tree + path):
            try:
                for entry in os.scandir(place):
                    names.setdefault(entry.name, entry.path)
            except OSError:
                continue
        for name, source in names.items():
            shown = inside + name
            if shown in _OWN:
                continue
            busy = shown in self._mounted or any(point.startswith(shown + "/") for point in self._mounted)
            self._entry(source, shown, for_reading=len(names) > _MOST_ENTRIES and not busy)

    def _entry(self, source, shown, for_reading):
        target = self.root + shown
        kind = self._mounted.get(shown)
        if kind in _NOT_FILES or kind == "autofs":
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
            if for_reading:
                os.makedirs(target, exist_ok=True)
                self._for_reading(source, target)
            else:
                self._folder(shown)
        elif stat.S_ISREG(state.st_mode):
            _copy_or_show(source, target, state)

    def _laid_over(self, path):
        upper, target = self.tree + path, self.root + path
        os.makedirs(upper, exist_ok=True)
        if not os.path.isdir(path):  # the world begins with it
            return
        _as(path, upper)
        self._overlays += 1
        work = f"{self._work}/{self._overlays}"
        os.makedirs(work, exist_ok=True)
        options = f"lowerdir={_escaped(path)},upperdir={_escaped(upper)},workdir={_escaped(work)},userxattr"
        for more in (",volatile", ""):
            try:
                kernel.mount("overlay", target, "overlay", 0, options + more)
                return
            except OSError as error:
                why = error
        if why.errno in (1, 13) or self._overlays == 1:  # not allowed to: nothing of this can be had
            raise why
        self._for_reading(path, target)

    def _for_reading(self, source, target):
        try:
            kernel.bind(source, target)
            kernel.read_only(target)
            self._notes.append(f"{source} can be read only")
        except OSError as error:
            self._notes.append(f"{source} is left out ({error})")

    def own_folders(self):
        """``/dev``, ``/run``, ``/sys`` and ``/proc``; the last needs a process namespace of its own."""
        root = self.root
        _file_system(root + "/dev", "tmpfs", "mode=755,size=64k,nr_inodes=1k")
        for name in _DEVICES:
            _show_file("/dev/" + name, root + "/dev/" + name)
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink("/proc/self/fd" + target, f"{root}/dev/{name}")
        _file_system(root + "/dev/shm", "tmpfs", "mode=1777")
        _file_system(root + "/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=620")
        os.symlink("pts/ptmx", root + "/dev/ptmx")
        _file_system(root + "/run", "tmpfs", "mode=755")
        os.mkdir(root + "/run/lock", 0o1777)
        user = f"{root}/run/user/{os.getuid()}"
        os.makedirs(user)
        os.chmod(user, 0o700)
        os.makedirs(root + "/sys", exist_ok=True)
        kernel.bind("/sys", root + "/sys", recursive=True)
        kernel.read_only(root + "/sys", recursive=True)
        _file_system(root + "/proc", "proc", None)
        for name in _PROC_FOR_READING:
            path = f"{root}/proc/{name}"
            if os.path.exists(path):
                kernel.bind(path, path)
                kernel.read_only(path)
        for name in _PROC_HIDDEN:
            if os.path.exists(f"{root}/proc/{name}"):
                kernel.bind("/dev/null", f"{root}/proc/{name}")

    def show(self, path):
        """Show a folder of gonogo's as it is: what is written there is really written."""
        os.makedirs(self.root + path, exist_ok=True)
        kernel.bind(path, self.root + path)

    def blank(self, path):
        """Show an empty folder, or an empty file, at a path."""
        target = self.root + path
        if os.path.islink(target) or not os.path.exists(target):
            return
        if os.path.isdir(target):
            kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=16m")
        else:
            kernel.bind("/dev/null", target)

    def enter(self):
        """Make the folder of all this the root; the real one is gone for this process and what it starts."""
        os.chdir(self.root)
        kernel.call("pivot_root", b".", b".")
        kernel.unmount(".")
        os.chdir("/")


def _mount_points():
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


def _escaped(path):
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _as(source, target):
    """Mode, owner and times of a folder: the upper one's are those that are seen."""
    try:
        state = os.stat(source)
        os.chmod(target, stat.S_IMODE(state.st_mode))
        if os.geteuid() == 0:
            os.chown(target, state.st_uid, state.st_gid)
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    except OSError:
        pass  # an owner that this user namespace doesn't know: it stays the user's


def _copy_or_show(source, target, state):
    if os.path.lexists(target):
        return
    if state.st_size > _SMALL:
        _show_file(source, target)
        kernel.read_only(target)
        return
    try:
        with open(source, "rb") as reading, open(target, "wb") as writing:
            writing.write(reading.read())
        os.chmod(target, stat.S_IMODE(state.st_mode))
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    except OSError:
        pass  # a file that this user can't read


def _show_file(source, target):
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    kernel.bind(source, target)


def _file_system(target, kind, options):
    os.makedirs(target, exist_ok=True)
    flags = kernel.MS_NOSUID | (kernel.MS_NOEXEC if kind in ("proc", "devpts") else 0)
    kernel.mount(kind, target, kind, flags | (kernel.MS_NODEV if kind == "proc" else 0), options)
