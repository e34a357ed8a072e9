from gonogo.hazards.rule import Certainty, Field, Findings, Fix, Hazard, Launch, Pattern, Place, Run, Text, translated

_INDEX_OR_RANGE_PATTERN = Pattern(r"^([0-9]{1,3})(?:-([0-9]{1,2}))?$")
_DIGITS_PATTERN = Pattern(r"^[0-9]+")
_FILTERS = ("include", "exclude", "num_gpus", "num_nodes", "hostfile")


class LaunchVisibleDevicesMalformed(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The command's value of the variable, parsed as CUDA does."""
        field = launch.visible_devices
        value = str(field.get("")).strip()
        if not value or value in ("-1", "all", "none", "void", "NoDevFiles"):
            return
        if launch.launcher == "deepspeed":
            yield from self._deepspeed_findings(launch, value)
            return
        wanted = _intended_gpus(value)
        seen = _parse_like_cuda(value)
        if wanted is None or seen == wanted:
            return
        right = ",".join(dict.fromkeys(wanted))
        yield self.finding(
            self.texts["cause_in_launch"].format(
                value=value,
                seen=Text(f"GPU {','.join(seen)} only", f"只看到 GPU {','.join(seen)}")
                if seen
                else translated("no GPU"),
                count=len(dict.fromkeys(wanted)),
                right=right,
                why=translated("; listing a GPU twice invalidates the list") if len(set(wanted)) < len(wanted) else "",
            ),
            certainty=Certainty.CERTAIN if not seen else Certainty.LIKELY,
            cure=translated("Write numbers separated by commas, each once: CUDA_VISIBLE_DEVICES={right}").format(
                right=right
            ),
            spans=field.span(),
            fixes=self._correction_fix(launch, right),
        )

    def _deepspeed_findings(self, launch: Launch, value: str) -> Findings:
        """The deepspeed launcher turns it into ``--include localhost:VALUE``, where each part must be an integer."""
        if any(name in launch.launcher_options for name in _FILTERS) or not launch.launcher_options.complete:
            return
        wrong = [part for part in value.split(",") if not part.strip().isdecimal()]
        if not wrong:
            return
        wanted = _intended_gpus(value)
        right = ",".join(dict.fromkeys(wanted)) if wanted else ""
        yield self.finding(
            self.texts["deepspeed_cause"].format(value=value, wrong=wrong[0]),
            cure=translated("Write the GPUs' numbers, each once{right}").format(
                right=Text(f": {right}", f"：{right}") if right else ""
            ),
            spans=(launch.visible_devices.span(), launch.place.span()),
            fixes=self._correction_fix(launch, right) if right else None,
        )

    def _correction_fix(self, launch: Launch, right: str) -> Fix | None:
        place = _value_place(launch.visible_devices)
        title = translated("set CUDA_VISIBLE_DEVICES to {right}").format(right=right)
        return self.fix(title, place.edit(right), safe=False) if place is not None else None


def _intended_gpus(value: str) -> list[str] | None:
    """The GPUs that were meant; None if that is unclear (UUIDs, words)."""
    found: list[str] = []
    for part in value.strip("[](){}").replace(";", ",").replace("，", ",").replace(" ", ",").split(","):
        given = _INDEX_OR_RANGE_PATTERN.match(part) if part else None
        if given is not None:
            first, last = int(given.group(1) or 0), int(given.group(2) or given.group(1) or 0)
            if given.group(2) and not first < last < 64:
                return None
            found += [str(number) for number in range(first, last + 1)]
        elif part:
            return None
    return found or None


def _parse_like_cuda(value: str) -> list[str]:
    """The list as CUDA parses it: up to the first part that is not a number; empty if one is repeated."""
    found: list[str] = []
    for part in value.split(","):
        number = _DIGITS_PATTERN.match(part.strip())
        if number is None:
            break
        gpu = number.group(0).lstrip("0") or "0"
        if gpu in found:
            return []
        found.append(gpu)
    return found


def _value_place(field: Field) -> Place | None:
    """The place of the value without its quotes, if it is written literally."""
    place, value = field.place, str(field.value)
    if place is None or not place.source.writable:
        return None
    written = place.text.removeprefix("CUDA_VISIBLE_DEVICES=")
    if written not in (value, f'"{value}"', f"'{value}'"):
        return None
    written_value = value.encode("utf-8", "surrogateescape")
    start = place.source.data.find(written_value, place.start, place.end)
    return place.source.place(start, start + len(written_value)) if start >= 0 else None
