from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, translated, whole_number

_MAX_GPUS = 1024
"""More is a typo: no machine has so many."""


class LaunchVisibleDevicesOverridden(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The GPUs of the variable compared with those that the launcher's options select."""
        visible = visible_gpus(launch) if launch.launcher == "deepspeed" else None
        if visible is None or launch.visible_devices.place is None or not all(gpu.isdecimal() for gpu in visible):
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
        elif name.startswith("num_") and (count := whole_number(field)) is not None and 0 < count <= _MAX_GPUS:
            taken = [str(number) for number in range(count)]
        if taken is None or sorted(taken) == sorted(visible):
            return
        listed = ",".join(visible)
        yield self.finding(
            self.texts["cause"].format(visible=listed, name=name, value=field.value, taken=",".join(taken)),
            cure=self.texts["cure"].format(visible=listed, name=name),
            spans=(
                field.span(translated("GPUs {taken} of the machine").format(taken=",".join(taken))),
                launch.visible_devices.span(translated("this variable is ignored")),
            ),
            fixes=self.fix(
                translated("remove --{name}, so that the variable takes effect").format(name=name),
                options.removing(name),
                safe=False,
            )
            if name.startswith("num_") and len(taken) == len(visible) and options.can_edit(name)
            else None,
        )
