from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Severity, Text

_MOST_GPUS = 1024
"""More is a slip of the pen: a machine has no such number."""


class LaunchVisibleDevicesOverridden(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The GPUs of the variable against those that the launcher's options come to."""
        visible = visible_gpus(launch) if launch.launcher == "deepspeed" else None
        if visible is None or launch.visible_devices.place is None or not all(gpu.isdigit() for gpu in visible):
            return
        options = launch.launcher_options
        name = next((one for one in ("include", "exclude", "num_gpus", "num_accelerators") if one in options), None)
        if name is None:
            return
        field = options.get(name)
        taken: list[str] | None = None
        if name == "include" and field.string:
            host, colon, slots = field.string.partition(":")
            if "@" not in field.string and colon and host == "localhost":
                taken = [slot.strip() for slot in slots.split(",")]
        elif name.startswith("num_") and (count := whole_number(field)) is not None and 0 < count <= _MOST_GPUS:
            taken = [str(number) for number in range(count)]
        if taken is None or sorted(taken) == sorted(visible):
            return
        listed = ",".join(visible)
        yield self.finding(
            Text(
                "CUDA_VISIBLE_DEVICES={visible} is ignored beside --{name} {value}: the run takes the machine's GPUs "
                "{taken}.",
                "有 --{name} {value} 时 CUDA_VISIBLE_DEVICES={visible} 会被忽略：训练将使用本机的 GPU {taken}。",
            ).format(visible=listed, name=name, value=field.value, taken=",".join(taken)),
            severity=Severity.WARNING,
            cure=Text(
                "Name the GPUs to the launcher: deepspeed --include localhost:{visible}; or keep the variable and take "
                "--{name} out",
                "把 GPU 交给启动器指定：deepspeed --include localhost:{visible}；或保留该变量，去掉 --{name}",
            ).format(visible=listed, name=name),
            spans=(
                field.span(Text("GPUs {taken} of the machine", "本机的 GPU {taken}").format(taken=",".join(taken))),
                launch.visible_devices.span(Text("ignored", "被忽略")),
            ),
            fixes=self.fix(
                Text("take --{name} out, so that the variable counts", "去掉 --{name}，使该变量生效").format(name=name),
                options.removing(name),
                safe=False,
            )
            if name.startswith("num_") and len(taken) == len(visible) and options.can_edit(name)
            else None,
        )
