"""What a user reads of the confinement."""

from __future__ import annotations

from gonogo.confinement.world import Means
from gonogo.finding import Text

CANNOT_CONFINE = Text(
    "this machine can't confine the rehearsed programs ({why}), so none was run. Enable user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0; in a "
    "container --security-opt seccomp=unconfined --security-opt systempaths=unconfined), or use a kernel "
    "with Landlock (Linux 5.19 or newer); or pass --unconfined: the programs can then change and delete "
    "whatever you can",
    "本机无法限制排练所运行的程序（{why}），因此没有运行。请启用用户命名空间（sysctl "
    "kernel.unprivileged_userns_clone=1，或 kernel.apparmor_restrict_unprivileged_userns=0；容器中使用 "
    "--security-opt seccomp=unconfined --security-opt systempaths=unconfined），或使用带 Landlock 的内核"
    "（Linux 5.19 或更新）；也可以加上 --unconfined，此时程序可以修改和删除你能修改的一切",
)
UNCONFINED = Text(
    "--unconfined: the programs of this run were not confined. They could change and delete your files, "
    "use the network and your credentials, and keep running afterwards",
    "--unconfined：本次运行的程序未受限制，可以修改和删除你的文件、使用网络和你的凭据，并在结束后继续运行",
)
ONLY_LANDLOCK = Text(
    "this kernel allows no user namespaces: programs could only write below the rehearsal's temporary "
    "folder, and could not use sockets or set file modes and times. Runs that need more can't be judged",
    "此处内核不允许用户命名空间：程序只能写入排练的临时目录，不能连接任何 socket，也不能设置文件的权限和时间。"
    "需要更多权限的运行无法判断",
)
_CONFINED_BY: dict[Means, Text] = {
    "namespaces": Text(
        "rehearsed programs are confined by namespaces and overlayfs: whatever they do, nothing outside changes",
        "排练的程序由命名空间和 overlayfs 隔离：无论做什么，都不会影响外部",
    ),
    "landlock": Text(
        "rehearsed programs are confined by Landlock and seccomp: they can write only below the rehearsal's folder "
        "(namespaces refused: {why})",
        "排练的程序由 Landlock 和 seccomp 限制：只能写入排练的目录（命名空间被拒绝：{why}）",
    ),
    "none": Text(
        "rehearsed programs can't be confined here ({why}): gonogo rehearse runs none of them without --unconfined",
        "此处无法限制排练的程序（{why}）：除非给出 --unconfined，gonogo rehearse 不会运行它们",
    ),
}


_BY_DOOR = Text(
    "{confined} (user namespaces are made by {door}, since this machine refuses gonogo its own: {why})",
    "{confined}（用户命名空间由 {door} 创建，因为本机拒绝 gonogo 自己创建：{why}）",
)


def confined_by(means: Means, refused: str, door: str = "") -> Text:
    """By what programs are confined on this machine, for ``gonogo env``. ``door``: what makes the user namespaces."""
    text = _CONFINED_BY[means].format(why=refused or "-")
    return _BY_DOOR.format(confined=text, door=door, why=refused or "-") if door else text
