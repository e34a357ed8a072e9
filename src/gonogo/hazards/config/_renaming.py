"""Fixes that rename a keyword of a call or an option of a launch."""

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.script.script import Call
from gonogo.evidence.source_file import Place
from gonogo.finding import Fix, translated
from gonogo.hazards.facts.training_framework import fix_with_edits


def keyword_rename_fixes(call: Call, old: str, new: str, *, safe: bool) -> tuple[Fix, ...]:
    """A fix that renames the keyword; none if the call has the new one too."""
    place = call.keyword_place(old)
    if place is None or not place.text.startswith(f"{old}=") or new in call.keywords or not call.script.editable:
        return ()
    return _rename_fix(place, old, new, safe=safe)


def option_rename_fixes(launch: Launch, old: str, new: str, *, safe: bool) -> tuple[Fix, ...]:
    """A fix that renames the option; none if the launch has the new one too."""
    place = launch.options.place_of(old)
    if place is None or new in launch.options or not launch.options.can_edit(old):
        return ()
    written = next((one for one in (f"--{old}", f"--{old.replace('_', '-')}") if place.text.startswith(one)), None)
    return _rename_fix(place, written, f"--{new}", safe=safe) if written else ()


def _rename_fix(place: Place, old_name: str, new: str, *, safe: bool) -> tuple[Fix, ...]:
    name = place.source.place(place.start, place.start + len(old_name))
    title = translated("Rename it to {new}").format(new=new)
    return fix_with_edits(title, lambda: name.edit(new), safe=safe)
