"""What shell text comes to, against a table and against bash itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gonogo.evidence.shell.script_commands import ShellCommand, read_shell
from gonogo.evidence.source_file import SourceFile

UNKNOWN = None


def commands(text: str, folder: Path, **options: object) -> list[ShellCommand]:
    path = folder / "script.sh"
    path.write_text(text, encoding="utf-8", newline="")
    return read_shell(SourceFile.read(path), folder, **options)  # type: ignore[arg-type]


# Each ends in a call of `show`, and is settled: bash itself prints the same words.
SETTLED = {
    "words": "show a 'b c' \"d e\" f\\ g $'x'",
    "variables": 'A=1; B="$A two"; show $A "$B" $B ${A}x "${B}y"',
    "variables side by side": 'A=1; B=2; C="$A $B  ${A}	$B\n $A"; show $C "$C" "$A $B" "$(echo $A) $((A + B)) $A"',
    "defaults": 'unset X; show ${X:-8} "${X-d e}" ${X:=5} $X ${Y:+no} ${X:+yes} ${X+set}',
    "empty default": 'X=; show "${X:-d}" "${X-d}" ${X:-} end',
    "suffixes": "F=a/b/c.tar.gz; show ${F%.gz} ${F%%.*} ${F##*/} ${F#*/} ${F%/*} ${F/a/z} ${F//c/q}",
    "cases": "X=aBc; show ${X^^} ${X,,} ${X^} ${#X} ${X:1} ${X:0:2}",
    "arithmetic": "A=7; B=2; show $((A / B)) $((A * B + 1)) $(( (A-1) % 4 )) $((A > B ? 10 : 20)) $((2**5))",
    "negative arithmetic": "A=7; B=2; show $((-A / B)) $((-A % B))",
    "arrays": 'A=(a "b c" d); A+=(e); show "${A[@]}" ${#A[@]} ${A[1]} "${A[0]}x" ${A[-1]}',
    "array copied": 'A=(1 2); B=("${A[@]}" 3); show "${B[@]}"',
    "word splitting": 'D="--n 8 \\\n  --m  2\n"; show $D end',
    "no splitting in quotes": 'D="a  b"; show "$D"',
    "appending": 'A="x"; A+=" y"; A="$A z"; show $A "$A"',
    "continuations": "show a \\\n   b \\\n   c",
    "comments": "# show x\nshow a # b\n",
    "if true": 'A=1; if [ "$A" = "1" ]; then B=x; else B=y; fi; show $B',
    "if elif": "A=3; if [ $A -eq 1 ]; then B=x; elif [[ $A -gt 2 && $A -lt 4 ]]; then B=y; else B=z; fi; show $B",
    "case": 'D=zero3; case "$D" in zero2) C=2 ;; zero3|z3) C=3 ;; *) exit 1 ;; esac; show $C',
    "pattern": "A=qwen_7b; if [[ $A == qwen* ]]; then show yes; else show no; fi",
    "and or": '[ -z "" ] && A=1; [ -n "" ] || B=2; true && C=3; false || D=4; show $A $B $C $D',
    "for": 'L=; for i in a b; do L="$L$i"; done; show $L',
    "while": "N=0; while [ $N -lt 3 ]; do N=$((N + 1)); done; show $N",
    "while break": "N=0; while true; do N=$((N+1)); if [ $N -eq 4 ]; then break; fi; done; show $N",
    "function": 'f() { local a=$1; shift; B="$a:$*:$#"; }; f x y z; show "$B"',
    "main": 'main() { show "$@" $# "$2"; }; main a "b c" d',
    "arguments loop": (
        'set -- --m x --n y; while [[ $# -gt 0 ]]; do case "$1" in --m) M=$2; shift 2;; *) N=$2; shift 2;; esac; done; '
        "show $M $N"
    ),
    "substitution": 'F=/a/b.py; show $(dirname $F) "$(basename "$F")" $(basename $F .py) `echo hi`',
    "counting": (
        'V=0,1,3; show $(echo $V | tr "," "\\n" | wc -l) $(echo "$V" | awk -F, "{print NF}") $(echo $V | cut -d, -f2)'
    ),
    "expr": "A=16; show $(expr $A / 4) $(expr $A \\* 2)",
    "seq": "show $(seq 0 3) $(seq -s, 0 3)",
    "unset": 'A=1; unset A; show "${A:-gone}"',
    "subshell": "A=1; (A=2; true); show $A",
    "here": "cat > /dev/null <<EOF\nshow no\nEOF\nshow yes",
    "nested defaults": 'unset A B; show "${A:-${B:-deep}}" ${A:-$((1+2))}',
    "tilde": "show ~/x",
    "quotes inside": 'show "a\'b" \'c"d\' "e\\"f" "g\\$h" "i\\\\j"',
    "colon default": ': "${P:=9}"; show $P',
    "exported": "export A=1 B='2 3'; declare -x C=4; readonly D=5; show $A \"$B\" $C $D",
    "test": "if test 1 = 1; then show yes; fi",
    "not": "if ! [ 1 = 2 ]; then show yes; fi",
    "double parentheses": "A=3; if (( A > 2 )); then show big; else show small; fi",
    "reading": "IFS=, read -ra A <<< '0,1,3'; read B C <<< 'x y z'; show ${#A[@]} ${A[2]} $B \"$C\"",
    "reading a heredoc": "N=2\nread -r -d '' A <<EOF\n  train.py \\\n  --n $N\n  --b 3\nEOF\nshow $A \"$A\"",
    "reading a line of a heredoc": "read -r A B <<'E' || true\n x  $y z \nnot this\nE\nshow $A \"$B\"",
    "reading to a delimiter": "if read -d , A <<< 'x y,z'; then C=found; fi; read -d , B <<< 'x' || show \"$A\" $C",
    "reading with a prompt": "read -p 'which? ' A <<< 'x y'; read <<< ' a b'; show \"$A\" \"$REPLY\"",
    "reading that fails": "read -d '' A <<E && show no\nx\nE\nshow $A",
    "a name that goes on in the next line": 'A=1; AB=2; show $A\\\nB "$A\\\nB" "$A\\\n-B"',
    "counting up": "N=1; (( N++ )); ((N += 2)); show $N",
    "text in text": "A='--x 1'; B=\"$A --y 2\"; show $B",
}


@pytest.mark.parametrize("text", SETTLED.values(), ids=SETTLED.keys())
def test_as_bash_does(text: str, tmp_path: Path) -> None:
    show = "show() { printf '%s\\0' \"$@\"; }\n"
    found = subprocess.run(["bash", "-c", show + text], capture_output=True, cwd=tmp_path, check=True)
    expected = [part.decode() for part in found.stdout.split(b"\0")[:-1]]
    read = [command for command in commands(text, tmp_path) if command.words[0].value == "show"]
    assert [[word.value for word in command.words[1:]] for command in read] == [expected]


UNSETTLED = {
    "environment": ("show $GPUS", [UNKNOWN], "`$GPUS` is not set in the script"),
    "substitution": ("A=$(nvidia-smi -L | wc -l); show $A", [UNKNOWN], "`$(nvidia-smi -L | wc -l)`"),
    "argument": ('A=$1; show "$A"', [UNKNOWN], "the script's argument `$1`"),
    "a command's outcome": ("if grep -q x y; then A=1; else A=3; fi; show $A", [UNKNOWN], "condition in line 1"),
    "branches": (
        'if [ "$Q" = 2 ]; then A=2; else A=3; fi; show $A',
        [UNKNOWN],
        "`A` depends on the condition in line 1",
    ),
    "branches that agree": ('if [ "$Q" = 2 ]; then A=2; else A=2; fi; show $A', ["2"], ""),
    "a branch that ends": ('A=1; if [ "$Q" = 2 ]; then A=2; exit 1; fi; show $A', ["1"], ""),
    "loop": ("A=1; while read x; do A=2; done; show $A", [UNKNOWN], "loop on line 1"),
    "unknown loop": ("A=1; for f in *.json; do A=$f; done; show $A", [UNKNOWN], "loop on line 1"),
    "case": ("case $Q in a) A=1;; *) A=2;; esac; show $A", [UNKNOWN], "condition"),
    "slurm": ("show $SLURM_PROCID", [UNKNOWN], "Slurm sets"),
    "random": ("show $RANDOM", [UNKNOWN], "only when the script runs"),
    "unset by its caller": ('if [ -z "$A" ]; then A=4; fi; show $A', ["4"], ""),
    "usage": ('if [ -z "$1" ]; then echo usage; exit 1; fi; show ok', ["ok"], ""),
    "usage by count": ('if [ $# -lt 1 ]; then echo usage; exit 1; fi; show "ok"', ["ok"], ""),
    "usage in one line": ('[ -z "$M" ] && echo usage && exit 1\nshow "ok"', ["ok"], ""),
    "partly": ('show "x-$Q"', [UNKNOWN], "`$Q` is not set"),
    "words of a text that is known in part": ('D="--a $Q --b 2"; show $D', ["--a", UNKNOWN, "--b", "2"], ""),
}


@pytest.mark.parametrize(("text", "words", "reason"), UNSETTLED.values(), ids=UNSETTLED.keys())
def test_what_the_files_do_not_settle(text: str, words: list[str | None], reason: str, tmp_path: Path) -> None:
    read = [command for command in commands(text, tmp_path) if command.words[0].value == "show"]
    assert [word.value for word in read[-1].words[1:]] == words
    if reason:
        shown = read[-1].words[1].reason
        assert shown is not None
        assert reason in shown.en
        assert shown.zh


def test_commands_of_branches_and_loops_are_told(tmp_path: Path) -> None:
    text = 'if [ "$A" = 1 ]; then show a; else show b; fi\nfor f in $(ls); do show c "$f"; done\nfalse || show d\n'
    read = [command.words[1].value for command in commands(text, tmp_path) if command.words[0].value == "show"]
    assert read == ["a", "b", "c", "d"]


def test_words_of_a_split_text_stand_where_they_are_written(tmp_path: Path) -> None:
    (command,) = commands('N=8\nD="--n $N \\\n   --m 2"\nshow $D x\n', tmp_path)
    assert [word.place.text for word in command.words] == ["show", "--n", "$N", "--m", "2", "x"]
    assert [word.place.line for word in command.words] == [4, 2, 2, 3, 3, 4]


def test_words_of_an_array_stand_where_they_are_written(tmp_path: Path) -> None:
    (command,) = commands('A=(\n  --x "1 2"\n)\nshow "${A[@]}"\n', tmp_path)
    assert [(word.value, word.place.line) for word in command.words] == [("show", 4), ("--x", 2), ("1 2", 2)]


def test_sourced_files_set_variables(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export N=4\n")
    (command,) = commands('source "$(dirname "$0")/env.sh"\nshow $N\n', tmp_path)
    assert command.words[1].value == "4"
    assert command.environment["N"].value == "4"


def test_where_a_command_runs(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    text = 'cd "$(dirname "${BASH_SOURCE[0]}")"\nshow\ncd sub && show\nD=$(cd "$(dirname "$0")/.." && pwd)\nshow $D\n'
    first, second, third = commands(text, tmp_path)
    assert (first.cwd, first.cwd_known) == (tmp_path, True)
    assert second.cwd == tmp_path / "sub"
    assert third.words[1].value == str(tmp_path.parent)


def test_files_that_the_script_writes(tmp_path: Path) -> None:
    text = "S=3\ncat > ds.json <<EOF\n{\"stage\": $S}\nEOF\ncat <<'E' >b.yaml\na: $S\nE\ntee c.txt <<< x\nshow\n"
    command = commands(text, tmp_path)[-1]
    written = {Path(path).name: "".join(p.text or "" for p in pieces) for path, (pieces, _) in command.written.items()}
    assert written["ds.json"] == '{"stage": 3}\n'
    assert written["b.yaml"] == "a: $S\n"


def test_line_ends_of_windows(tmp_path: Path) -> None:
    (command,) = commands("show a \\\r\n  b\r\n", tmp_path)
    assert [(word.value or "").strip("\r") for word in command.words] == ["show", "a", "b"]
