"""Launch scripts of any bytes, mutated, deep or endless: an answer, never a traceback."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.launch.reading import launches_of_command, read_launches
from gonogo.evidence.source_file import SourceFile
from gonogo.evidence.training_arguments import read_arguments

EXAMPLES = [path.read_bytes() for path in sorted((Path(__file__).parents[2] / "examples").glob("*/launch*.sh"))]
MORE = b"""#!/bin/bash
#SBATCH -N 2 --gres=gpu:8
set -euo pipefail
source ./env.sh
A=(--x "$1" ${B:-2}); A+=("${A[@]}"); F=${A%/*}; : ${G:=$((N * 2 / M))}
f() { local n=$1; shift; torchrun --nproc_per_node $n "$@" $(echo x | wc -l); }
for i in 1 2 3; do [ $i -eq 2 ] && continue || f $i t.py --a "$i"; done
while [[ $# -gt 0 ]]; do case "$1" in -x|--y) Y=$2; shift 2 ;; *) shift ;; esac; done
if [ -f x ]; then cat <<EOF > ds.json
{"a": $N}
EOF
elif (( N > 3 )); then eval "$CMD"; else bash -c 'deepspeed --include h:0,1 t.py'; fi
srun -n 4 bash -c "accelerate launch --num_processes $N t.py ${A[*]}"
deepspeed --hostfile=h t.py $A "${A[@]}" 'a b' --deepspeed ds.json 2>&1 | tee log &
"""


def use(launch: Launch) -> None:
    """Look at all that hazards look at."""
    for field in (launch.nodes, launch.processes_per_node, launch.world_size, launch.program, launch.deepspeed_config):
        field.span()
        assert field.known or field.absent or field.place is None or field.place.start <= len(field.place.source.data)
    for options in (launch.options, launch.launcher_options):
        for name in options.names():
            for edit in (options.removing(name), options.replacing(name, "v"), options.adding("new", "1")):
                source = launch.source.data
                if edit.path == launch.source.path:
                    assert source[edit.start : edit.end] == edit.before
    launch.setting_variable("X", "1")
    arguments = read_arguments(launch)
    assert all(arguments.has(name) for name in arguments.names())
    assert launch.line >= 1


def read(data: bytes, folder: Path) -> tuple[Launch, ...]:
    found = read_launches(SourceFile(str(folder / "launch.sh"), data))
    for launch in found[:20]:
        use(launch)
    return found


COMMON = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TOKENS = [
    *("if", "then", "fi", "case", "esac", "for", "do", "done", "while", "{", "}", "(", ")", "((", "))", "$(", "`", '"'),
    *("'", "$", "${", "}", "${A[@]}", "$@", "$1", "A=(", "A+=", "A=1", "\n", ";", "&&", "||", "|", "&", ">", "<<EOF\n"),
    *(
        "EOF\n",
        "\\\n",
        "torchrun",
        "deepspeed",
        "--x",
        "t.py",
        "srun",
        "bash -c",
        "eval",
        "export",
        "local",
        "[[",
        "]]",
    ),
    *("#SBATCH -N 2\n", "accelerate launch", "\r\n", "\x00", "é", "~", "$((", "$((1/0))", "${A:-", "${A%", "${#", "!"),
]


@COMMON
@given(st.binary(max_size=400))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    read(data, tmp_path)


@COMMON
@given(st.lists(st.sampled_from(TOKENS), max_size=60))
def test_any_tokens(tmp_path: Path, tokens: list[str]) -> None:
    read(" ".join(tokens).encode(), tmp_path)


@COMMON
@given(st.data())
def test_mutations(tmp_path: Path, data: st.DataObject) -> None:
    script = bytearray(data.draw(st.sampled_from([*EXAMPLES, MORE, MORE])))
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(script)))
        end = min(len(script), start + data.draw(st.integers(0, 30)))
        token = data.draw(st.sampled_from(TOKENS) | st.just(""))
        script[start:end] = token.encode()
    read(bytes(script), tmp_path)


@COMMON
@given(st.lists(st.text(max_size=12) | st.sampled_from([*TOKENS, "--nproc_per_node", "8"]), max_size=12))
def test_any_typed_command(tmp_path: Path, words: list[str]) -> None:
    for launch in launches_of_command(words, tmp_path):
        use(launch)


DEEP = {
    "blocks": "if true; then " * 3000 + "torchrun t.py; " + "fi; " * 3000,
    "braces": "{ " * 5000 + "torchrun t.py; " + "} ; " * 5000,
    "subshells": "( " * 5000 + "torchrun t.py " + ")" * 5000,
    "substitutions": "A=" + "$(echo " * 2000 + "x" + ")" * 2000 + "\ntorchrun t.py $A\n",
    "defaults": "A=" + "${B:-" * 2000 + "x" + "}" * 2000 + "\ntorchrun t.py $A\n",
    "arithmetic": "A=$((" + "(" * 3000 + "1" + ")" * 3000 + "))\ntorchrun --nproc_per_node $A t.py\n",
    "sums": "A=$((" + "1+" * 5000 + "1))\ntorchrun --nproc_per_node $A t.py\n",
    "lists": " && ".join(["true"] * 5000) + " && torchrun t.py\n",
    "pipes": " | ".join(["cat"] * 5000) + "\ntorchrun t.py\n",
    "conditions": "if [[ " + " && ".join(["-n x"] * 3000) + " ]]; then torchrun t.py; fi\n",
    "negations": "! " * 3000 + "torchrun t.py\n",
    "doubling": "A=x\n" + 'A="$A$A"\n' * 200 + "torchrun t.py $A\n",
    "doubling split": "A='x y'\n" + 'A="$A $A"\n' * 60 + "torchrun t.py $A\n",
    "doubling arrays": "A=(x y)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + 'torchrun t.py "${A[@]}"\n',
    "growing": "A=x\n" + 'A="$A y"\n' * 3000 + "torchrun t.py $A\n",
    "recursion": "f() { f; f; torchrun t.py; }\nf\n",
    "mutual recursion": "f() { g; g; }\ng() { f; f; }\nf\n",
    "endless loop": "while true; do N=$((N + 1)); torchrun t.py $N; done\n",
    "nested loops": "for i in 1 2 3 4 5 6 7 8; do " * 8 + "torchrun t.py; " + "done; " * 8,
    "nested unknown loops": "while x; do " * 30 + "torchrun t.py; " + "done; " * 30,
    "branches": "".join(f'if [ "$Q{n}" = 1 ]; then A{n}=1; fi\n' for n in range(300)) + "torchrun t.py\n",
    "many launches": "torchrun t.py\n" * 5000,
    "many options": "torchrun t.py " + " ".join(f"--o{n} {n}" for n in range(5000)) + "\n",
    "a long word": "torchrun t.py --x " + "a" * 1_000_000 + "\n",
    "patterns": "A=" + "a" * 1000 + "\nB=${A%%" + "*a" * 50 + "b}\ntorchrun t.py $B\n",
    "unclosed": "torchrun t.py --x \"$(( ${A[" * 500,
    "evals": 'eval "eval \\"eval torchrun t.py\\""\n' * 100,
    "bash in bash": "bash -c 'bash -c \"bash -c torchrun\"'\n" * 50,
    "directives": "#SBATCH --x y -N 2 z\n" * 2000 + "srun python t.py\n",
}  # fmt: skip


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_depth_and_size(text: str, tmp_path: Path) -> None:
    begin = time.process_time()
    found = read_launches(SourceFile(str(tmp_path / "launch.sh"), text.encode()))
    assert len(found) <= 200
    for launch in found[:3]:
        launch.options.names()
        launch.setting_variable("X", "1")
    assert time.process_time() - begin < 4


def test_scripts_that_source_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("source b.sh\nsource b.sh\nexport A=1\n")
    (tmp_path / "b.sh").write_text("source a.sh\nsource a.sh\n")
    launches = read_launches(SourceFile(str(tmp_path / "launch.sh"), b"source a.sh\ntorchrun t.py\n"))
    assert launches[0].variable("A").value == "1"
