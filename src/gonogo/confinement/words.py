"""What a user reads of the confinement."""

from __future__ import annotations

from gonogo.confinement.world import Means
from gonogo.finding import Text

CANNOT_CONFINE = Text(
    "this machine can't confine what a rehearsal runs ({why}): no line of it was run. Enable user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0; in a container "
    "--security-opt seccomp=unconfined --security-opt systempaths=unconfined), or use a kernel with Landlock (Linux "
    "5.19 or newer); or say --unconfined, and the programs can change and delete what you can",
    "本机无法限制排练所运行的程序（{why}）：没有运行任何一行。请启用用户命名空间（sysctl "
    "kernel.unprivileged_userns_clone=1，或 kernel.apparmor_restrict_unprivileged_userns=0；容器中使用 --security-opt "
    "seccomp=unconfined --security-opt systempaths=unconfined），或使用带 Landlock 的内核（Linux 5.19 或更新）；"
    "也可以加上 --unconfined，此时程序可以修改和删除你能修改的一切",
)
UNCONFINED = Text(
    "--unconfined: the programs of this run were not confined. They could change and delete your files, use the "
    "network and your credentials, and go on running",
    "--unconfined：本次运行的程序未受限制，可以修改和删除你的文件、使用网络和你的凭据，并在结束后继续运行",
)
ONLY_LANDLOCK = Text(
    "this kernel allows no user namespaces here: programs could write only below the rehearsal's temporary folder, "
    "reach no socket, and set no modes or times of files. A run that needs more can't be told",
    "此处内核不允许用户命名空间：程序只能写入排练的临时目录，不能连接任何 socket，也不能设置文件的权限和时间。"
    "需要更多权限的运行无法判断",
)
_BY: dict[Means, Text] = {
    "namespaces": Text(
        "rehearsed programs are confined by namespaces and overlayfs: they may do what they like, and nothing outside "
        "changes",
        "排练的程序由命名空间和 overlayfs 限制：它们可以为所欲为，而外面没有任何改变",
    ),
    "landlock": Text(
        "rehearsed programs are confined by Landlock and seccomp: they can write only below the rehearsal's folder "
        "(namespaces refused: {why})",
        "排练的程序由 Landlock 和 seccomp 限制：只能写入排练的目录（命名空间被拒绝：{why}）",
    ),
    "none": Text(
        "rehearsed programs can't be confined here ({why}): gonogo rehearse runs none of them, unless --unconfined is "
        "said",
        "此处无法限制排练的程序（{why}）：除非给出 --unconfined，gonogo rehearse 不会运行它们",
    ),
}


def confined_by(means: Means, refused: str) -> Text:
    """By what programs are confined on this machine, for ``gonogo env``."""
    return _BY[means].format(why=refused or "-")
