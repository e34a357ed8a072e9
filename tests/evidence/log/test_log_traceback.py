from __future__ import annotations

import pytest
from evidence.log.log_text import TRACEBACK, raised


def places(text: str) -> list[tuple[str, int, str]]:
    (error,) = raised(text)
    return [(frame.path.rpartition("/")[2], frame.line, frame.function) for frame in error.frames]


class TestPlain:
    def test_frames_code_type_and_message(self) -> None:
        (error,) = raised(TRACEBACK)
        assert (error.type, error.message) == ("RuntimeError", "the loss is no scalar")
        assert [frame.code for frame in error.frames] == ["main()", "loss.backward()"]
        assert places(TRACEBACK) == [("train.py", 88, "<module>"), ("train.py", 71, "main")]
        assert error.at.number == 7

    @pytest.mark.parametrize(
        ("line", "type_", "message"),
        [
            ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "OutOfMemoryError", "CUDA out of memory."),
            ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "ChildFailedError", ""),
            ("AssertionError", "AssertionError", ""),
            ("binascii.Error: Incorrect padding", "Error", "Incorrect padding"),
            ("ray.exceptions.RayTaskError(ValueError): \x1b[36mray::f()", "RayTaskError(ValueError)", "ray::f()"),
            ("E   KeyError: 'qwen9'", "KeyError", "'qwen9'"),
            ("[E123] failed with ValueError: no such split", "ValueError", "no such split"),
            ("  3%|▎  | 3/100 [00:01<00:30]RuntimeError: no", "RuntimeError", "no"),
            ("训练报错：ValueError: 标签缺失", "ValueError", "标签缺失"),
            ("SystemExit: 2", "SystemExit", "2"),
        ],
    )
    def test_a_last_line_alone(self, line: str, type_: str, message: str) -> None:
        (error,) = raised(line)
        assert (error.type, error.message, error.frames) == (type_, message, ())

    @pytest.mark.parametrize(
        "line",
        ["Epoch: 3", "INFO: started", "loss: 0.31", "wandb: Waiting for W&B", "FutureWarning: old", "Error rate: 3 %"],
    )
    def test_a_line_that_is_no_exception(self, line: str) -> None:
        assert raised(line) == []
        assert raised(f"{'-' * 60}\n{line}") == []
        (error,) = raised(TRACEBACK.replace("RuntimeError", f"{line}\nRuntimeError"))
        assert error.type == "RuntimeError"

    def test_an_exception_of_any_name_below_its_frames(self) -> None:
        (error,) = raised(TRACEBACK.replace("RuntimeError", "datastore.Empty"))
        assert error.qualified == "datastore.Empty"
        (error,) = raised(TRACEBACK.replace("RuntimeError", "StopTraining"))
        assert error.type == "StopTraining"

    def test_a_message_of_several_lines_ends_where_another_begins(self) -> None:
        more = "\tsize mismatch for a\n\tsize mismatch for b\n[2024-05-01 10:00:00,000] [INFO] x"
        (error,) = raised(TRACEBACK + more)
        assert error.message.splitlines() == ["the loss is no scalar", "\tsize mismatch for a", "\tsize mismatch for b"]

    def test_notes_belong_to_the_message(self) -> None:
        (error,) = raised(TRACEBACK + "while loading shard 3\nof model-00003.safetensors\n\nbye")
        assert "while loading shard 3\nof model-00003" in error.message
        assert "bye" not in error.message

    def test_a_loggers_line_ends_the_message(self) -> None:
        (error,) = raised(TRACEBACK + "2024-05-01 10:00:00,123 next step\n")
        assert error.message == "the loss is no scalar"

    def test_a_traceback_without_an_end_has_frames_and_no_type(self) -> None:
        (cut,) = raised(TRACEBACK.rpartition("RuntimeError")[0])
        assert (cut.type, cut.message) == ("", "")
        assert len(cut.frames) == 2

    def test_frames_without_a_header(self) -> None:
        (error,) = raised(TRACEBACK.partition("\n")[2])
        assert len(error.frames) == 2

    def test_a_header_after_a_progress_bar(self) -> None:
        (error,) = raised("  5%|▌   | 5/100 [00:09<02:50,  1.79s/it]" + TRACEBACK)
        assert len(error.frames) == 2

    def test_line_breaks_lost(self) -> None:
        (error,) = raised(" ".join(TRACEBACK.split()))
        assert [frame.function for frame in error.frames] == ["<module>", "main"]
        assert error.message == "the loss is no scalar"

    def test_quoted_in_markdown(self) -> None:
        (error,) = raised("".join(f"> {line}\n" for line in TRACEBACK.splitlines()))
        assert len(error.frames) == 2
        assert error.type == "RuntimeError"

    def test_a_syntax_error(self) -> None:
        text = '  File "train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax'
        (error,) = raised(text)
        assert (error.type, error.frames[0].path, error.frames[0].function) == ("SyntaxError", "train.py", "")

    def test_a_dump_of_all_threads_is_no_traceback(self) -> None:
        dump = (
            'Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n  File "a", line 3 in f\n'
        )
        assert [error for error in raised(dump + "ValueError: later") if error.frames] == []

    def test_endless_recursion_keeps_both_ends(self) -> None:
        deep = "".join(f'  File "a.py", line {n}, in f{n}\n    f()\n' for n in range(5000))
        (error,) = raised(f"Traceback (most recent call last):\n{deep}RecursionError: maximum recursion depth exceeded")
        assert len(error.frames) <= 400
        assert (error.frames[0].function, error.frames[-1].function) == ("f0", "f4999")


class TestBoxed:
    RICH = """╭─────────────────────────────── Traceback (most recent call last) ────────────────────────────────╮
│ /home/li/sft/train.py:88 in <module>                                                             │
│                                                                                                  │
│    87 if __name__ == "__main__":                                                                 │
│ ❱  88 │   main()                                                                                 │
│                                                                                                  │
│ /opt/conda/envs/a-long-name-of-an-environment/lib/python3.10/site-packages/transformers/trainer.p │
│ y:1696 in train                                                                                  │
│                                                                                                  │
│   1695 │   │   )                                                                                 │
│ ❱ 1696 │   │   return inner_training_loop(                                                       │
│                                                                                                  │
│ /opt/conda/lib/python3.10/site-packages/transformers/very_long_module_name_here.py:1973 in       │
│ _inner_training_loop                                                                             │
│ ❱ 1973 │   │   │   │   loss = step()                                                             │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
RuntimeError: the loss is no scalar
"""

    def test_paths_that_were_broken_are_joined(self) -> None:
        assert places(self.RICH) == [
            ("train.py", 88, "<module>"),
            ("trainer.py", 1696, "train"),
            ("very_long_module_name_here.py", 1973, "_inner_training_loop"),
        ]
        (error,) = raised(self.RICH)
        assert error.frames[0].code == "main()"

    def test_ipython(self) -> None:
        text = """---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
Cell In[7], line 3
      1 trainer = make()
----> 3 trainer.train()

File ~/miniconda3/lib/python3.10/site-packages/transformers/trainer.py:1539, in Trainer.train(self, resume)
   1538     self.x
-> 1539 return inner(
   1540     args)

/usr/lib/python3/dist-packages/torch/nn/functional.py in embedding(input, weight)
   2199
RuntimeError: the loss is no scalar
"""
        assert places(text) == [
            ("Cell In[7]", 3, "<module>"),
            ("trainer.py", 1539, "Trainer.train"),
            ("functional.py", 0, "embedding"),
        ]
        (error,) = raised(text)
        assert error.frames[0].code == "trainer.train()"

    def test_a_notebook_copied_as_markdown(self) -> None:
        text = """ValueError                                Traceback (most recent call last)
Cell In[10], [line 10](vscode-notebook-cell:?execution_count=10&line=10)
      [1](vscode-notebook-cell:?execution_count=10&line=1) x = 1
---> [10](vscode-notebook-cell:?execution_count=10&line=10) trainer.train()
ValueError: no
"""
        assert places(text) == [("Cell In[10]", 10, "<module>")]
        assert raised(text)[0].frames[0].code == "trainer.train()"

    def test_ipython_of_old(self) -> None:
        text = "<ipython-input-3-3435b262f1ae> in <module>\n----> 1 train()\n\nValueError: no"
        assert places(text) == [("<ipython-input-3-3435b262f1ae>", 0, "<module>")]


class TestChained:
    def test_the_cause_is_kept(self) -> None:
        for words in (
            "The above exception was the direct cause of the following exception:",
            "During handling of the above exception, another exception occurred:",
        ):
            first, second = raised(f"{TRACEBACK}\n{words}\n\n" + TRACEBACK.replace("RuntimeError", "ValueError"))
            assert second.cause == first
            assert first.cause is None

    def test_what_merely_follows_is_no_cause(self) -> None:
        assert [error.cause for error in raised(TRACEBACK + "\n" + TRACEBACK)] == [None, None]

    def test_groups(self) -> None:
        text = """  + Exception Group Traceback (most recent call last):
  |   File "/home/li/a.py", line 3, in <module>
  |     run()
  | ExceptionGroup: unhandled errors (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/li/a.py", line 9, in one
    |     raise ValueError("x")
    | ValueError: x
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/home/li/a.py", line 12, in two
    |     raise KeyError("y")
    | KeyError: 'y'
    +------------------------------------
"""
        found = [(error.type, error.message, [frame.line for frame in error.frames]) for error in raised(text)]
        assert found == [
            ("ExceptionGroup", "unhandled errors (2 sub-exceptions)", [3]),
            ("ValueError", "x", [9]),
            ("KeyError", "'y'", [12]),
        ]

    def test_a_workers_traceback_inside_a_message(self) -> None:
        caught = "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal "
        inner = TRACEBACK.replace("RuntimeError", "KeyError").replace("train.py", "data.py")
        outer, original = raised(TRACEBACK.rpartition("RuntimeError")[0] + caught + inner)
        assert outer.message == "Caught KeyError in DataLoader worker process 0."
        assert original.frames[-1].path.endswith("data.py")


class TestInterleaved:
    def test_two_ranks_line_by_line_without_prefix(self) -> None:
        both = "".join(f"{line}\n{line}\n" for line in TRACEBACK.splitlines())
        first = raised(both)[0]
        assert [frame.function for frame in first.frames] == ["<module>", "main"]

    def test_a_second_header_in_the_midst(self) -> None:
        lines = TRACEBACK.splitlines(keepends=True)
        first = raised("".join([*lines[:3], *lines[:3], *lines[3:], *lines[3:]]))[0]
        assert [frame.function for frame in first.frames] == ["<module>", "main"]

    def test_others_lines_between(self) -> None:
        noisy = TRACEBACK.replace("  File", "Loading checkpoint shards:  50%|████▌    | 1/2\nwandb: hello\n  File")
        assert len(raised(noisy)[0].frames) == 2
