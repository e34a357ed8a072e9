import os

from gonogo.evidence.field import whole_number
from gonogo.evidence.launch.launchers.hostfile import MAX_HOSTFILE_BYTES
from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.paths import is_file
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import UserError
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, Pattern, Run, Severity, Text, translated

_MAX_SHOWN = 10
_ENTRY_PATTERN = Pattern(r"^(\S+)\s+slots=(\d+)")


class LaunchHostfileUnusable(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The file in --hostfile if it is in the script's folder; --num_nodes without one."""
        if launch.launcher != "deepspeed":
            return
        options = launch.launcher_options
        nodes = whole_number(options.get("num_nodes"))
        named = options.get("hostfile")
        if named.absent:
            if nodes is not None and nodes > 1:
                yield self._no_hostfile_finding(launch, nodes)
            return
        path = named.string
        if path is None or os.path.isabs(path):
            return
        whole_path = launch.cwd / path
        if not is_file(whole_path):
            program = launch.path_of(launch.program)
            if launch.cwd_known or (program is not None and is_file(program)):
                yield self._missing_hostfile_finding(launch, path, nodes)
            return  # otherwise the script runs in another folder
        try:
            source = SourceFile.read(whole_path, limit=MAX_HOSTFILE_BYTES)
        except UserError:
            return
        source.path = os.path.relpath(whole_path) if not os.path.relpath(whole_path).startswith("..") else source.path
        problems, hosts = _parse_hostfile(source)
        place = options.place_of("hostfile")
        for line, what in problems[:1]:
            yield self.finding(
                self.texts["cause_in_launch"].format(
                    path=path,
                    line=line.line,
                    what=what,
                    more=Text(f" ({len(problems) - 1} more below)", f"（另有 {len(problems) - 1} 行）")
                    if len(problems) > 1
                    else "",
                ),
                cure=translated("Write each line as NAME slots=N, each name once"),
                spans=(*(one.span(label) for one, label in problems[:_MAX_SHOWN]), place.span() if place else None),
            )
        if not problems and not hosts:
            yield self.finding(
                translated("{path} lists no hosts; the launcher raises an error.").format(path=path),
                cure=translated("Write a line for each node: worker-0 slots=8"),
                spans=(place.span() if place else None, source.place(0, 0).span()),
            )
        elif not problems:
            yield from self._node_and_gpu_count_findings(launch, hosts, path)

    def _no_hostfile_finding(self, launch: Launch, nodes: int) -> Finding:
        place = launch.launcher_options.place_of("num_nodes")
        return self.finding(
            self.texts["no_hostfile_cause"].format(nodes=nodes),
            certainty=Certainty.LIKELY,
            cure=translated("Pass a hostfile with one line per node (worker-0 slots=8): --hostfile hostfile"),
            spans=place.span() if place else None,
            confirm=translated("/job/hostfile is not on the launching node"),
        )

    def _missing_hostfile_finding(self, launch: Launch, path: str, nodes: int | None) -> Finding:
        place = launch.launcher_options.place_of("hostfile")
        several = nodes is not None and nodes > 1
        return self.finding(
            translated("{path} is not in {folder}. The launcher only warns and {then}.").format(
                path=path,
                folder=launch.cwd.name or "/",
                then=Text(f"then raises, since --num_nodes is {nodes}", f"随后因 --num_nodes 为 {nodes} 而报错")
                if several
                else translated("trains with this node's GPUs alone"),
            ),
            certainty=Certainty.LIKELY,
            severity=Severity.ERROR if several else Severity.WARNING,
            cure=translated("Put the hostfile there, or, for a single node, remove --hostfile"),
            spans=place.span() if place else None,
            confirm=translated("Nothing creates the file before the launch either"),
        )

    def _node_and_gpu_count_findings(self, launch: Launch, hosts: dict[str, int], path: str) -> Findings:
        options = launch.launcher_options
        place = options.place_of("num_nodes")
        nodes = whole_number(options.get("num_nodes"))
        if nodes is not None and nodes > len(hosts) and place is not None:
            yield self.finding(
                translated("--num_nodes {nodes}, but {path} lists {count} host(s): the run uses {count}.").format(
                    nodes=nodes, path=path, count=len(hosts)
                ),
                severity=Severity.WARNING,
                cure=translated("Add the other hosts to {path}").format(path=path),
                spans=place.span(),
            )
        gpus = whole_number(options.get("num_gpus", "num_accelerators"))
        place = options.place_of("num_gpus") or options.place_of("num_accelerators")
        fewer = {name: slots for name, slots in hosts.items() if gpus is not None and slots < gpus}
        if fewer and place is not None:
            listed = ", ".join(f"{name} slots={slots}" for name, slots in fewer.items())
            yield self.finding(
                self.texts["too_few_slots_cause"].format(gpus=gpus, path=path, listed=listed),
                certainty=Certainty.LIKELY,
                cure=translated("Make --num_gpus match the slots"),
                spans=place.span(),
            )
        for name in ("include", "exclude"):
            text = options.get(name).string
            place = options.place_of(name)
            wrong = _find_missing_host_or_slot(text, hosts) if text else None
            if wrong is not None and place is not None:
                what, cure = wrong
                yield self.finding(
                    translated("--{name} {text}: {wrong}, according to {path}; the launcher raises an error.").format(
                        name=name, text=text, wrong=what, path=path
                    ),
                    cure=cure.format(path=path),
                    spans=place.span(),
                )


def _parse_hostfile(source: SourceFile) -> tuple[list[tuple[Place, Text]], dict[str, int]]:
    """The errors of DeepSpeed's hostfile parser, and the slots of each host."""
    problems: list[tuple[Place, Text]] = []
    hosts: dict[str, int] = {}
    offset = 0
    for data in source.data.splitlines(keepends=True):
        text = data.decode("utf-8", "replace").strip()
        place = source.place(offset, offset + len(data.rstrip()))
        offset += len(data)
        if not text or text.startswith("#"):
            continue
        match = _ENTRY_PATTERN.search(text)
        if match is None:
            problems.append((place, Text(f"`{text[:60]}` is not NAME slots=N", f"`{text[:60]}` 不是 名称 slots=N")))
        elif match.group(1) in hosts:
            host = match.group(1)
            problems.append((place, Text(f"{host} is named a second time", f"{host} 重复出现")))
        else:
            hosts[match.group(1)] = int(match.group(2))
    return problems, hosts


def _find_missing_host_or_slot(text: str, hosts: dict[str, int]) -> tuple[Text, Text] | None:
    """A host or a slot of a filter that the hostfile doesn't have, and what to do."""
    for part in text.split("@"):
        name, colon, slots = part.partition(":")
        if name not in hosts:
            return Text(f"there is no host {name}", f"没有主机 {name}"), Text(
                f"Name one of {', '.join(hosts)}, or add a line {name} slots=8 to {{path}}",
                f"改为 {'、'.join(hosts)} 之一，或在 {{path}} 中加一行 {name} slots=8",
            )
        for slot in slots.split(",") if colon else ():
            if (number := parse_whole_number(slot)) is not None and number >= hosts[name]:
                return Text(
                    f"{name} has no slot {slot} (slots={hosts[name]})", f"{name} 没有编号 {slot}（slots={hosts[name]}）"
                ), Text(
                    f"Let {{path}} give all the GPUs of {name}, slots={number + 1} or more, and the filter choose "
                    f"among them; or choose from 0 to {hosts[name] - 1}",
                    f"让 {{path}} 写出 {name} 的全部 GPU（slots={number + 1} 或更多），再由过滤选项从中选择；或从 0 "
                    f"到 {hosts[name] - 1} 中选择",
                )
    return None
