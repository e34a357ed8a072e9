from __future__ import annotations

import pytest
from evidence.log.log_text import lines_of, log_of

ERROR = "RuntimeError: no"


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[rank3]: ", 3),
        ("[rank3]:", 3),
        ("[3]:", 3),
        ("[default3]:", 3),
        ("[default0]:[rank3]: ", 3),
        ("[1,3]<stderr>:", 3),
        ("(RayTrainWorker pid=812, ip=10.0.0.7) ", None),
        ("(TrainWorker pid=812, ip=10.0.0.7, rank=3) ", 3),
        ("(MegatronPolicyWorker[rank=3] pid=812) ", 3),
        ("(PolicyWorker[rank=3,dp=1] pid=812, ip=10.0.0.7) ", 3),
        ("(Worker TP0 pid=812) ", None),
        ("trainer-1  | ", None),
        ("[pod/train-0/pytorch] ", None),
        ("2024-05-01T10:00:00.123456789Z stderr F ", None),
        ("2024-05-01T10:00:00.123456789+08:00 stderr F [rank3]: ", 3),
        ("2024-05-01 10:00:00,123 ", None),
        ("2024-05-01 10:00:00 [rank3]: ", 3),
        ("[2024-05-01 10:00:00] [rank3]: ", 3),
        ("\x1b[31m[rank3]: \x1b[0m", 3),
        ("", None),
    ],
)
def test_prefixes_are_taken_off(prefix: str, rank: int | None) -> None:
    (line,) = lines_of(f"{prefix}{ERROR}\n")
    assert (line.text, line.rank) == (ERROR, rank)


@pytest.mark.parametrize(
    ("text", "told"),
    [("[2024-05-01 10:00:01,500] [INFO] x", 1.5), ("2024-05-01T10:00:01.25Z stderr F x", 1.25), ("x", None)],
)
def test_times(text: str, told: float | None) -> None:
    (line,), (start,) = lines_of(text), lines_of("2024-05-01 10:00:00 x")
    assert start.time is not None
    assert (None if line.time is None else line.time - start.time) == told


class TestPrefixesThatTheLinesAgreeOn:
    BODY = ("step 1", "step 2", "  File x", ERROR)

    def test_srun(self) -> None:
        lines = lines_of("".join(f"{rank}: {text}\n" for text in self.BODY for rank in (0, 11)))
        assert {line.rank for line in lines} == {0, 11}
        assert lines[-1].text == ERROR
        assert lines[5].text == "  File x"

    @pytest.mark.parametrize("nodes", [("node1", "node2"), ("10.0.0.1", "10.0.0.2"), ("worker-0", "worker-1")])
    def test_pdsh(self, nodes: tuple[str, str]) -> None:
        lines = lines_of("".join(f"{node}: {text}\n" for text in self.BODY for node in nodes))
        assert [line.node for line in lines[:2]] == list(nodes)
        assert lines[-1].text == ERROR

    def test_pdsh_before_a_rank(self) -> None:
        lines = lines_of("".join(f"node{node}: [rank{node}]: {text}\n" for text in self.BODY for node in (1, 2)))
        assert [(line.node, line.rank) for line in lines[:2]] == [("node1", 1), ("node2", 2)]

    def test_a_few_lines_that_look_so_are_the_programs_own(self) -> None:
        lines = lines_of(f"7: seven\nplain\nplain too\nmore\n{ERROR}\n")
        assert lines[0].text == "7: seven"
        assert lines[0].rank is None


class TestProgressBars:
    def test_only_the_last_state_counts(self) -> None:
        states = "\r".join(f"{n}%|█ | {n}/100" for n in range(100))
        assert [line.text for line in lines_of(f"{states}\n")] == ["99%|█ | 99/100"]

    def test_a_traceback_after_the_bar_on_one_line(self) -> None:
        states = "\r".join(f"{n}%|█ | {n}/100" for n in range(100))
        body = 'Traceback (most recent call last):\r  File "a.py", line 3, in f\r    g()\rValueError: x'
        (error,) = log_of(f"{states}\r{body}\n").errors
        assert (error.type, error.frames[0].function) == ("ValueError", "f")

    def test_windows_line_ends(self) -> None:
        assert [line.text for line in lines_of("a\r\nb\r\n")] == ["a", "b"]


class TestBytes:
    def test_terminal_sequences_go(self) -> None:
        data = "\x1b[1;31mRuntimeError\x1b[0m: \x1b]8;;http://x\x07no\x1b]8;;\x07\x1b(B\x9b31m\u202e\x00!\n"
        assert [line.text for line in lines_of(data)] == ["RuntimeError: no!"]

    def test_gb18030(self) -> None:
        assert [line.text for line in lines_of("ValueError: 显存不足，无法分配\n".encode("gb18030"))] == [
            "ValueError: 显存不足，无法分配"
        ]

    def test_each_line_has_an_encoding_of_its_own(self) -> None:
        data = "训练开始\n".encode() + "显存不足\n".encode("gb18030") + b"\xff\xfe\xfd\n"
        assert [line.text for line in lines_of(data)][:2] == ["训练开始", "显存不足"]

    def test_a_long_line_is_cut(self) -> None:
        (line,) = lines_of(b"x" * 100_000)
        assert len(line.text) == 8192

    def test_numbers_count_from_the_part(self) -> None:
        assert [line.number for line in lines_of("a\n\nb")] == [1, 2, 3]
