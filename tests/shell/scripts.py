"""Shell scripts made at random, for bash and for gonogo's reader: ``prog NUMBER WORD…`` is what they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

_T = TypeVar("_T")

NAMES = ("A", "B", "C", "D", "F", "G", "N", "U", "long_name", "_x")
"""``U`` is never set at the start."""
START = (
    "A=1",
    'B="x y"',
    "C=",
    'D="--n 8 --m"',
    'E=(p "q r" s)',
    "F=/a/b.tar.gz",
    'G="  lead trail  "',
    "N=7",
    "long_name=llm",
    "_x=a,b",
    "unset U",
)
_PLAIN = (
    *(
        "a",
        "-x",
        "--opt",
        "b/c",
        ".",
        "1e-5",
        ",",
        "a=b",
        "@",
        "%",
        "+",
        ":",
        "/",
        "_",
        "..",
        "x.json",
        "=",
        "-",
        "a#b",
    ),
    *("--k=v", "[1]", "{}", "{x}", "^", "7", "!x", "~x", "a~", "é", "1,2", "]", "},"),
)
_ESCAPED = ("\\ ", "\\$", "\\\\", '\\"', "\\'", "\\a", "\\*", "\\#", "\\;", "\\(")
_SINGLE = ("'a b'", "'$A'", "'\\'", "''", "'x\"y'", "'*'", "'#'", "'{a,b}'")
_ANSI = ("$'a\\tb'", "$'it\\'s'", "$'\\n'", "$'x'")
_IN_QUOTES = (
    *(
        " ",
        "  ",
        '\\"',
        "\\$x",
        "\\\\",
        "'",
        "#",
        "\t",
        "(",
        ")",
        "*",
        "\\\n",
        "\n",
        "~",
        "{",
        "}",
        "[",
        "\\a",
        "!",
        ";",
    ),
    *("a", "/", ",", "=", "x y", "%", ".json"),
)
_OPERATORS = (
    *(":-d", "-d", ':-"d e"', ":-$A", ":-a b", ":-", "-", ":+k", "+k", ":+$A/x", ':+"k l"', ":-${N}"),
    *("%.gz", "%%.*", "##*/", "#*/", "%/*", "%y", "/x/_", "// /_", "/a/", "//a/bb", "^^", ",,", "^", ",", ":1", ":0:1"),
    *(": -1", ":1:2", ":-${U:-u}", "/y", "##*.", "%b*", "#?", "//[ab]/z"),
)
_ARRAYS = (
    *(
        "${E[1]}",
        "${E[0]}",
        "${E[5]}",
        "${#E[@]}",
        "${E[@]}",
        "${E[*]}",
        "${E[-1]}",
        "${E[@]:1}",
        "${E[N-6]}",
        "$E",
        "${E}",
    ),
    *("${#E}", "${#E[1]}", "${E[@]:0:2}", "${E[@]/q/z}", "${E[@]%s}", "${!E[@]}"),
)
_QUOTED_WHOLE = ('"${E[@]}"', '"$@"', '"${E[*]}"', '"$*"', '"${@}"', '"${@:2}"', '"${E[@]:1}"', '"pre${E[@]}post"')
_ARITHMETIC = ("N+1", "N * 2", "$N-1", "N%3", "(N+1)*2", "N>3?1:2", "${N}/2", "-N", "N==7", "2**3", "N<<1", "A+N")
_SUBSTITUTED = (
    *(
        "$(echo hi)",
        "$(basename $F)",
        "$(dirname $F)",
        "`echo hi`",
        "$(echo a b)",
        "$(echo $B)",
        '$(echo "$B")',
        "$(pwd)",
    ),
    *(
        "$(basename $F .gz)",
        "$(printf %s x)",
        "`pwd`",
        "$(echo -n z)",
        "$(dirname a)",
        "$(echo)",
        "$(cd sub; pwd)",
        "$(echo $A$N)",
    ),
)
_POSITIONAL = ("$#", "$1", "$2", "$@", "$*", "${1}", "${1:-none}", "${3-none}", "$0", "${10}")
_MATCHED = ("*.json", "sub/*", "?.json", "[ab].json", "*.none", "s*b/x*", "*", "a*", "./*.json", "**")
_BRACES = ("{a,b}", "x{1..3}y", "{a,$A}", "{a}", "{,x}", "a{b,c{d,e}}f", "{3..1}", "{01..03}", "{a..c}", "{a,b}{c,d}")
_BLANKS = (" ", " ", " ", "  ", "\t", " \\\n", " \\\n  ", "\\\n ")


class Maker:
    """Makes one script. ``choose`` decides: by hypothesis, which then finds the smallest script that shows a fault."""

    def __init__(self, choose: Callable[[Sequence[_T]], _T]) -> None:
        self.choose = choose
        self.number = 0
        self.functions: list[str] = []
        self.files: dict[str, str] = {}
        self.depth = 0

    def several(self, most: int, least: int = 1) -> range:
        """A small number of turns."""
        return range(self.choose(range(least, most + 1)))

    def expansion(self) -> str:
        """Something that begins with ``$`` or a backquote."""
        kind = self.choose(range(12))
        if kind <= 3:
            return f"${self.choose(NAMES)}"
        if kind <= 5:
            return "${" + self.choose(NAMES) + "}"
        if kind <= 7:
            return "${" + self.choose(NAMES) + self.choose(_OPERATORS) + "}"
        if kind == 8:
            return self.choose((f"${{#{self.choose(NAMES)}}}", self.choose(_ARRAYS)))
        if kind == 9:
            return f"$(({self.choose(('', ' '))}{self.choose(_ARITHMETIC)}{self.choose(('', ' '))}))"
        if kind == 10:
            return self.choose(_SUBSTITUTED)
        return self.choose(_POSITIONAL)

    def quoted(self) -> str:
        """A text in double quotes."""
        parts = [
            self.expansion() if self.choose((True, False)) else self.choose(_IN_QUOTES) for _ in self.several(4, 0)
        ]
        return f'"{"".join(parts)}"'

    def word(self) -> str:
        """One word of a command, of parts that touch."""
        if self.choose(range(12)) == 0:
            return self.choose(_QUOTED_WHOLE)
        parts = []
        for _ in self.several(4):
            kind = self.choose(range(16))
            if kind <= 4:
                parts.append(self.choose(_PLAIN))
            elif kind <= 10:
                parts.append(self.expansion())
            elif kind <= 12:
                parts.append(self.quoted())
            elif kind == 13:
                parts.append(self.choose(_SINGLE + _ANSI))
            elif kind == 14:
                parts.append(self.choose(_ESCAPED))
            else:
                parts.append(self.choose(_BRACES + _MATCHED))
        return "".join(parts)

    def simple(self) -> str:
        """A word that can stand where a program's words do and has no blanks to split."""
        return self.choose((self.choose(_PLAIN[:8]), '"$A"', "$N", "${A}b", "'s t'", self.quoted()))

    def program(self) -> str:
        """``prog NUMBER WORD…``, with what can stand around it."""
        self.number += 1
        words = [self.word() for _ in self.several(4, 0)]
        line = f"prog {self.number}" + "".join(self.choose(_BLANKS) + word for word in words)
        kind = self.choose(range(24))
        if kind == 0:
            line = f"{self.choose(('A', 'X', 'C'))}={self.simple()} {line}"
        elif kind == 1:
            line += self.choose(
                (" > out.txt", " 2>&1", " >> log.txt 2>&1", " < /dev/null", " &> /dev/null", " 2> err.txt")
            )
        elif kind == 2:
            line += self.choose((" | cat", " | tee log.txt", " || true", " && true", " & wait", " ;", "; true"))
        elif kind == 3:
            line += self.choose((" # note", "  # a $B 'c", " #"))
        elif kind == 4:
            line = self.choose(("true && ", "false || ", "! ", ": ; ", "false && ", "true || ")) + line
        elif kind == 5:
            line = self.choose((f"eval {line.partition(chr(10))[0]}" if "\\" not in line else line, line))
        elif kind == 6:
            line = f"({line})"
        elif kind == 7:
            line = f"{{ {line}; }}" if not line.rstrip().endswith(("\\", ";")) else line
        return line

    def assignment(self) -> str:
        """A variable or an array that is set."""
        name = self.choose(NAMES)
        kind = self.choose(range(16))
        if kind <= 5:
            return f"{name}={self.word()}"
        if kind == 6:
            return f"{name}+={self.word()}"
        if kind == 7:
            return f"E=({' '.join(self.word() for _ in self.several(3, 0))})"
        if kind == 8:
            return f"E+=({self.choose((' ', chr(10) + '  ')).join(self.word() for _ in self.several(3, 0))})"
        if kind == 9:
            return f"E[{self.choose(('0', '1', '4', 'N', '${#E[@]}'))}]={self.word()}"
        if kind == 10:
            return f"export {name}={self.word()}"
        if kind == 11:
            return f"{self.choose(('declare', 'readonly R', 'typeset -x'))} {name}={self.simple()}"
        if kind == 12:
            return f"unset {name}"
        if kind == 13:
            return f"{name}={self.word()} N={self.choose(('3', '$A', '${#E[@]}'))}"
        if kind == 14:
            return f"{self.choose(('((N++))', '((N+=2))', 'let N=N+1', '((A=N*2))', ': $((N+=1))', '((N--))'))}"
        if self.choose((True, False)):
            options = self.choose(("-r -d ''", "-rd ''", "-r", "", "-d ,"))
            return (
                f"read {options} {self.choose(('A', 'A B'))} <<EOF || true\n {self.simple()} x,\n  {self.simple()}\nEOF"
            )
        return f"read {self.choose(('-r ', ''))}A B <<< {self.simple()}"

    def moved(self) -> str:
        """A change of folder."""
        return self.choose(
            (
                *(
                    "cd sub",
                    "cd ..",
                    "cd ./sub",
                    "cd -",
                    "mkdir -p made; cd made",
                    "mkdir new\ncd new\ncd ..",
                    "cd none",
                    "cd",
                ),
                *(
                    "pushd sub",
                    "popd",
                    "cd sub && cd ..",
                    "cd $(dirname $0)",
                    'cd "$(dirname "$0")"/sub',
                    "cd /",
                    "cd sub/../sub",
                ),
                *(
                    "cd sub; cd none; cd ..",
                    'cd "${BASH_SOURCE[0]%/*}"',
                    "cd none || cd sub",
                    "cd $U",
                    "cd .",
                    "(cd sub)",
                    "cd $PWD/sub",
                ),
            )
        )

    def block(self, most: int = 2) -> str:
        """A few statements within another."""
        self.depth += 1
        text = "\n".join(self.statement() for _ in self.several(most))
        self.depth -= 1
        return text

    def condition(self) -> str:
        """A condition that is settled."""
        name = self.choose(NAMES)
        return self.choose(
            (
                *(
                    f'[ -z "${name}" ]',
                    f"[[ -n ${name} ]]",
                    f'[ "${name}" = 1 ]',
                    f"[[ ${name} == x* ]]",
                    "[ $# -gt 1 ]",
                    "true",
                ),
                *(
                    '[ "$N" -gt 3 ]',
                    "[[ $N -le 7 && -n $A ]]",
                    "((N > 3))",
                    "test -n x",
                    "[ -f a.json ]",
                    "[ -d none ]",
                    "false",
                ),
                *('[[ "$B" == "x y" ]]', "! true", "[[ $F =~ tar ]]", "[ -e sub/x1 ]", "[[ $U ]]", '[ "$1" != one ]'),
                *(
                    '[ -z "$A" ] || [ -n "$B" ]',
                    '[ -n "$A" -a -n "$C" ]',
                    "[[ ! -d sub ]]",
                    "[ ${#E[@]} -eq 3 ]",
                    "cd sub",
                ),
            )
        )

    def compound(self) -> str:
        """A branch, a loop, a function, a here-document …"""
        kind = self.choose(range(16))
        if kind == 0:
            other = self.choose(("", f"else\n{self.block()}\n", f"elif {self.condition()}; then\n{self.block()}\n"))
            return f"if {self.condition()}; then\n{self.block()}\n{other}fi"
        if kind == 1:
            values = " ".join(self.word() for _ in self.several(3, 0))
            return f"for X in {values}; do\n{self.block()}\nprog {self.next()} $X\ndone"
        if kind == 2:
            pattern = self.choose(("1", "x*", "[0-9]", '"x y"', "a|7", "?", "$A", "''"))
            value = self.choose(("$A", "$N", '"$B"', "$U", "x"))
            body = self.block()
            return f"case {value} in\n{pattern})\n{body}\n;;\n*) {self.program()}\n;;\nesac"
        if kind == 3:
            name = self.choose(("f", "g", "run_it"))
            head = self.choose((f"{name}() {{", f"function {name} {{", f"{name} ()\n{{", f"function {name}() {{"))
            local = self.choose(("", "local A=$1\n", 'local B="$2" C\n', "shift\n", "local N\n"))
            body = self.block()
            leave = self.choose(("", "", "\nreturn 1\nprog " + str(self.next())))
            self.functions.append(name)
            arguments = " ".join(self.word() for _ in self.several(3, 0))
            return f"{head}\n{local}{body}{leave}\n}}\n{name} {arguments}"
        if kind == 4 and self.functions:
            return f"{self.choose(self.functions)} {self.word()}"
        if kind == 5:
            mark = self.choose(("EOF", "'EOF'", '"EOF"', "\\EOF"))
            tab = self.choose(("", "-"))
            text = "\n".join(
                self.choose(("x $A", "${B}", "$(echo a)", "it's", '"q', "\\$A", "$$", "`echo b`", ""))
                for _ in self.several(3, 0)
            )
            after = self.choose(("", "", " && true", " | cat"))
            return f"cat <<{tab}{mark} > made.txt{after}\n{text}\nEOF\nprog {self.next()} after"
        if kind == 6:
            return f"i=0\nwhile [ $i -lt {self.choose(('0', '2', '$A'))} ]; do\n{self.program()}\ni=$((i+1))\ndone"
        if kind == 7:
            return f"for ((i=0; i<{self.choose(('2', 'A'))}; i++)); do\nprog {self.next()} $i {self.word()}\ndone"
        if kind == 8 and not self.files:
            self.files["more.sh"] = "" if self.depth else self.block(3) + "\n"
            return self.choose(
                (". ./more.sh", "source ./more.sh", f"source ./more.sh {self.word()}", "source $(pwd)/more.sh")
            )
        if kind == 9:
            return f"trap 'prog {self.next()} {self.choose(('$A', 'x', '$B'))}' EXIT"
        if kind == 10:
            return self.choose(
                (
                    "set -u",
                    "set -e",
                    "set -eu",
                    "set +e",
                    "set -o pipefail",
                    "set -x",
                    "shopt -s nullglob",
                    "set -f",
                    "IFS=,",
                )
            )
        if kind == 11:
            return self.choose(
                ("set -- one 'two three'", "set -- $D", "shift", 'set -- "$@" more', "set --", "shift 2")
            )
        if kind == 12:
            options = self.choose(("-a -n 5 rest", "-n5 -a", "rest", "-a -- -n 3", "-z"))
            return (
                f"set -- {options}\nOPTIND=1\nwhile getopts an: o; do\ncase $o in\na) A=on ;;\n"
                f'n) N=$OPTARG ;;\nesac\ndone 2> /dev/null\nshift $((OPTIND-1))\nprog {self.next()} $A $N "$@"'
            )
        if kind == 13:
            return f"prog {self.next()} $(which {self.choose(('no-such-program-here', 'sh'))}) {self.word()}"
        if kind == 14:
            return f"{{\n{self.block()}\n}}"
        return f"(\n{self.block()}\n)"

    def next(self) -> int:
        """A new program's number."""
        self.number += 1
        return self.number

    def statement(self) -> str:
        """One statement."""
        kind = self.choose(range(12))
        if kind <= 5:
            return self.program()
        if kind <= 8:
            return self.assignment()
        if kind == 9:
            return self.moved()
        return self.compound() if self.depth < 3 else self.program()

    def script(self) -> dict[str, str]:
        """The files of a script by name, ``run.sh`` first."""
        start = list(START)
        body = [self.statement() for _ in self.several(6)]
        return {"run.sh": "\n".join([*start, *body]) + "\n", **self.files}


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, str]:
    """Scripts as hypothesis makes them."""
    return Maker(lambda options: options[draw(st.integers(0, len(options) - 1))]).script()
