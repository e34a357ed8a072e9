"""Messages of a worker, which hold values as the user's program passed them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import samples

from gonogo.evidence.rehearsal.record import MissingInput, RankRecord
from gonogo.virtual.protocol.encoding import json_bytes, messagepack_bytes


class TrackedName(str):
    """As ``datasets.utils.track.tracked_str``, which says where it came from when it is shown."""

    def __str__(self) -> str:
        return "shown"


def test_a_record_with_a_programs_own_text_is_written() -> None:
    missed = MissingInput("data", TrackedName("rows.json"))
    record = samples.rank_record(missed=[missed], events=[TrackedName("opened")])
    read = msgspec.json.decode(json_bytes(record), type=RankRecord)
    assert read.missed == [MissingInput("data", "rows.json")]
    assert read.events == ["opened"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [(np.int64(3), 3), (np.float32(0.5), 0.5), (Path("a/b"), "a/b"), (TrackedName("x"), "x"), ([np.int8(2)], [2])],
)
def test_values_are_encoded_as_the_plain_ones(value: object, plain: object) -> None:
    assert msgspec.msgpack.decode(messagepack_bytes([value]), strict=False) == [plain]


def test_an_object_without_a_plain_value_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="object"):
        json_bytes([object()])
