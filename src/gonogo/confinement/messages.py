"""Messages about the confinement of programs."""

from __future__ import annotations

from gonogo.confinement.world import Means
from gonogo.finding import Text, translated

CANNOT_CONFINE = translated(
    "this machine can't sandbox the rehearsed programs ({why}), so none was run. Enable user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0; in a "
    "container --security-opt seccomp=unconfined --security-opt systempaths=unconfined), or use a kernel "
    "with Landlock (Linux 5.19 or newer); or pass --unconfined: the programs can then change and delete "
    "whatever you can"
)
UNCONFINED = translated(
    "--unconfined: the programs in this run were not sandboxed. They could change and delete your files, "
    "use the network and your credentials, and keep running afterwards"
)
ONLY_LANDLOCK = translated(
    "this kernel doesn't allow user namespaces: programs could write only below the rehearsal's "
    "temporary folder, and could not use sockets or set file modes and times. Runs that need more can't "
    "be judged"
)
_CONFINED_BY: dict[Means, Text] = {
    "namespaces": translated(
        "rehearsed programs are sandboxed with namespaces and overlayfs: whatever they do, nothing outside "
        "the sandbox changes"
    ),
    "landlock": translated(
        "rehearsed programs are sandboxed with Landlock and seccomp: they can write only below the "
        "rehearsal's folder (namespaces are not available: {why})"
    ),
    "none": translated(
        "rehearsed programs can't be sandboxed here ({why}): gonogo rehearse runs none of them without --unconfined"
    ),
}


_NAMESPACES_BY_HELPER = translated(
    "{confined} (user namespaces are created by {helper}, since this machine does not let gonogo create its own: {why})"
)


def confinement_text(means: Means, refusal_reason: str, namespace_helper: str = "") -> Text:
    """How programs are confined on this machine, for ``gonogo env``; the helper is what creates user namespaces."""
    reason = refusal_reason or "-"
    text = _CONFINED_BY[means].format(why=reason)
    if not namespace_helper:
        return text
    return _NAMESPACES_BY_HELPER.format(confined=text, helper=namespace_helper, why=reason)
