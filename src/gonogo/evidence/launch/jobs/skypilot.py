"""SkyPilot's tasks."""

from __future__ import annotations

import re

from gonogo.evidence.launch.jobs.workload import Workload, parse_size_bytes
from gonogo.evidence.launch.jobs.yaml_node import PlacedText, YamlNode
from gonogo.evidence.number import parse_whole_number

_WORKDIR = "~/sky_workdir"
_URL_SCHEME_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://")


def skypilot_task(node: YamlNode) -> Workload:
    """A task, whose ``run`` is executed by a shell on each of its nodes."""
    resources = node["resources"]
    choices = [resources, *resources["any_of"], *resources["ordered"]]
    name, count = next((stated for one in choices if (stated := _accelerators(one["accelerators"]))[0]), ("", ""))
    number = node["num_nodes"]
    nodes = 1 if number.node is None else number.number
    given = parse_whole_number(count)
    gpus = given if given is not None else 1 if name else None
    environment = {
        "SKYPILOT_NUM_NODES": str(nodes or 1),
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * (nodes or 1)),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus or 0),
        "SKYPILOT_TASK_ID": "sky-task",
    }
    here = node["run"].place
    words = {variable: PlacedText(value, here) for variable, value in environment.items()}
    for variables in (node["envs"], node["secrets"]):
        words |= {variable: PlacedText(value.text, value.place) for variable, value in variables.items()}
    memory = next((one["memory"].text for one in choices if one["memory"].text), "").rstrip("+x")
    instance = next((one["instance_type"].text for one in choices if one["instance_type"].text), None)
    folder = node["workdir"].text
    mounts = {} if folder is None else {_WORKDIR: folder}
    for there, source in node["file_mounts"].items():
        if source.text and not _URL_SCHEME_PATTERN.match(source.text):
            mounts[there] = source.text
    return Workload(
        "SkyPilot",
        (PlacedText("bash", here), PlacedText("-c", here), node["run"].placed_text()),
        words,
        nodes,
        gpus,
        instance or name or None,
        int(float(memory) * 2**30) if re.fullmatch(r"\d+(\.\d+)?", memory) else parse_size_bytes(memory),
        None,
        here,
        next((image for one in choices if (image := _container_image(one["image_id"])) is not None), None),
        folder,
        node["setup"].placed_text() if node["setup"].text else None,
        mounts=mounts,
        numbers=(number.placed_text(),) if number.text else (),
    )


def _accelerators(accelerators: YamlNode) -> tuple[str, str]:
    """The first accepted accelerator and its number: ``H100:8``, ``{H100: 8}``, ``[H100:8, A100-80GB:8]``."""
    accelerator = accelerators.text or next((one.text for one in accelerators if one.text), None)
    if accelerator is None:
        accelerator = next((f"{name}:{count.text or 1}" for name, count in accelerators.items()), "")
    name, _, count = accelerator.partition(":")
    return name, count


def _container_image(image: YamlNode) -> PlacedText | None:
    """The image of ``docker:IMAGE``; other images are VM images, whose names don't state versions."""
    if not (image.text or "").startswith("docker:"):
        return None
    return PlacedText((image.text or "").removeprefix("docker:"), image.place)
