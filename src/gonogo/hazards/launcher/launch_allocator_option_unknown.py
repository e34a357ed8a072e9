from gonogo.hazards.facts.launch_facts import split_words
from gonogo.hazards.rule import Certainty, Field, Findings, Hazard, Launch, Pattern, Place, Run, translated

# The names that the CUDA allocator's parser knows; expandable_segments came with torch 2.1.
_KNOWN_OPTIONS = split_words(
    """
    max_split_size_mb roundup_power2_divisions garbage_collection_threshold roundup_bypass_threshold_mb backend
    expandable_segments release_lock_on_cudamalloc release_lock_on_hipmalloc pinned_use_cuda_host_register
    pinned_use_hip_host_register pinned_num_register_threads pinned_use_background_threads
    pinned_reserve_segment_size_mb pinned_max_round_threshold_mb pinned_max_cached_size_mb max_non_split_rounding_mb
    per_process_memory_fraction graph_capture_record_stream_reuse large_segment_size_mb use_async_allocation
    throw_on_cudamalloc_oom
    """
)
_OPTION_PATTERN = Pattern(r"(?:[^,\[]|\[[^\]]*\]?)+")
_VERSIONS_WITH_OPTION = {"expandable_segments": ">=2.1"}
_OPTION_CORRECTIONS = {
    "max_split_size": "max_split_size_mb",
    "max_split_size_gb": "max_split_size_mb",
    "expandable_segment": "expandable_segments",
    "expandable_segements": "expandable_segments",
    "expandable-segments": "expandable_segments",
    "garbage_collection_treshold": "garbage_collection_threshold",
    "garbage_collection": "garbage_collection_threshold",
}


class LaunchAllocatorOptionUnknown(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Each option in PYTORCH_CUDA_ALLOC_CONF that this release of torch doesn't know."""
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            field = launch.variables.get(variable)
            value = field.string if field is not None else None
            if field is None or not value:
                continue
            for part in _split_allocator_options(value):
                name, colon, _ = part.partition(":")
                name = name.strip()
                since = _VERSIONS_WITH_OPTION.get(name)
                right, certainty = "", Certainty.CERTAIN
                cure = translated("Remove the option, or use a torch version that supports it")
                if not colon:
                    wrong, equals, setting = part.partition("=")
                    if equals and wrong.strip() in _KNOWN_OPTIONS:
                        right = f"{wrong.strip()}:{setting.strip()}"
                    what = translated("`{part}` is not written as NAME:VALUE").format(part=part)
                    cure = translated("Write it as NAME:VALUE")
                elif name not in _KNOWN_OPTIONS:
                    right = part.replace(name, _OPTION_CORRECTIONS[name], 1) if name in _OPTION_CORRECTIONS else ""
                    what = translated("no release of torch supports `{name}`").format(name=name)
                    certainty = Certainty.LIKELY
                elif since is not None and run.environment.within("torch", since) is False:
                    what = translated("`{name}` needs torch {since}, but the run has {version}").format(
                        name=name, since=since, version=run.environment.version("torch") or "an older one"
                    )
                    cure = translated('pip install "torch{since}", or remove the option')
                    cure = cure.format(since=since)
                else:
                    continue
                if right:
                    cure = translated("Write {right} instead").format(right=right)
                word = _option_place(field, part)
                yield self.finding(
                    translated("{variable}={value}: {what}; the first CUDA call raises an error.").format(
                        variable=variable, value=value, what=what
                    ),
                    certainty=certainty,
                    cure=cure,
                    spans=(
                        word.span() if word is not None else field.span(),
                        run.environment.field("torch").span() if since else None,
                    ),
                    fixes=self.fix(
                        translated("write {right} instead").format(right=right), word.edit(right), safe=False
                    )
                    if right and word is not None
                    else None,
                )


def _option_place(field: Field, part: str) -> Place | None:
    """The place of an option on its variable's line; None if the value is composed elsewhere."""
    place = field.place
    at = (
        place.source.data.find(part.encode("utf-8", "surrogateescape"), place.start, place.end)
        if place is not None
        else -1
    )
    return (
        place.source.place(at, at + len(part.encode("utf-8", "surrogateescape")))
        if place is not None and at >= 0
        else None
    )


def _split_allocator_options(value: str) -> list[str]:
    """The options, separated by commas outside brackets (``roundup_power2_divisions:[256:1,512:2]``)."""
    return [option for found in _OPTION_PATTERN.finditer(value) if (option := found.group(0).strip())]
