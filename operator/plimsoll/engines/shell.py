"""Which commands does a line of shell run, as far as that can be told without running it?

For `sh -c "vllm serve ..."`: quotes, continued lines, comments, `&&`, variables whose value is known, `export`,
`eval` and "$@". What only running would tell (`$(nproc)`, a variable that nobody set) stays in the word as it is
written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

Command = tuple[str, ...]

_OPERATORS: Final = frozenset(";&|()\n<>")
_KEYWORDS: Final = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "time", "exec"}
)
_OPENS: Final = frozenset({"if", "while", "until", "for", "case"})
_CLOSES: Final = frozenset({"fi", "done", "esac"})
_MOST_COMMANDS: Final = 1000
_DEEPEST_EVAL: Final = 3
UNKNOWN: Final = "$"
"""Begins what is not known before it runs."""


class _Scan(NamedTuple):
    """A word of the line, with the place behind it."""

    pieces: tuple[str, ...]
    """The word, or several where an unquoted variable holds several; () where it holds none."""
    at: int
    """Where the line goes on."""


def commands_of(
    script: str, env: Mapping[str, str], arguments: Sequence[str] = (), *, depth: int = 0
) -> tuple[Command, ...]:
    """Every simple command of the script in its order, without redirections; at most a thousand.

    Conditions are not judged: an assignment inside of one counts where the variable was empty before.
    """
    known = dict(env)
    found: list[Command] = []
    inside = 0
    for words in _simple(script, known, arguments):
        inside += sum(word in _OPENS for word in words[:1]) - sum(
            word in _CLOSES for word in words[:1]
        )
        command = _without_keywords(words)
        command = _assigned(command, known, is_sure=inside == 0)
        if command[:1] == ("eval",) and depth < _DEEPEST_EVAL:
            found += commands_of(" ".join(command[1:]), known, arguments, depth=depth + 1)
        elif command:
            found.append(command)
        if len(found) >= _MOST_COMMANDS:
            break
    return tuple(found[:_MOST_COMMANDS])


def _without_keywords(words: Command) -> Command:
    at = 0
    while at < len(words) and words[at] in _KEYWORDS:
        at += 1
    return words[at:]


def _assigned(words: Command, known: dict[str, str], *, is_sure: bool) -> Command:
    """The command without the assignments before it, which are remembered."""
    is_all = words[:1] in (("export",), ("declare",), ("local",), ("readonly",))
    at = start = int(is_all)
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if not equals or not name.isidentifier():
            break
        at += 1
    if at < len(words) and not is_all:
        return words[at:]  # these are the command's alone
    for word in words[start:at]:
        name, _, value = word.partition("=")
        if is_sure or not known.get(name):
            known[name] = value
    return () if is_all else words[at:]


def _simple(script: str, known: dict[str, str], arguments: Sequence[str]) -> Iterator[Command]:
    words: list[str] = []
    at, skips = 0, False
    while at < len(script):
        char = script[at]
        if char in " \t\r":
            at += 1
        elif script.startswith("\\\n", at):
            at += 2
        elif char == "#":
            end = script.find("\n", at)
            at = len(script) if end < 0 else end
        elif char in "<>":
            at += 1
            while at < len(script) and script[at] in "<>&":
                at += 1
            skips = True
        elif char in _OPERATORS:
            if words:
                yield tuple(words)
            words, skips = [], False
            at += 1
        else:
            scan = _word(script, at, known, arguments)
            at = scan.at
            is_descriptor = (
                at < len(script) and script[at] in "<>" and "".join(scan.pieces).isdigit()
            )
            if not skips and not is_descriptor:
                words += scan.pieces
            skips = False
    if words:
        yield tuple(words)


def _word(script: str, at: int, known: Mapping[str, str], arguments: Sequence[str]) -> _Scan:
    pieces, is_open = [""], False  # is_open: a quote makes even an empty word one
    while at < len(script):
        char = script[at]
        if char in " \t\r" or char in _OPERATORS:
            break
        if char == "\\":
            pieces[-1] += "" if script.startswith("\n", at + 1) else script[at + 1 : at + 2]
            at += 2
        elif char == "'":
            end = script.find("'", at + 1)
            end = len(script) if end < 0 else end
            pieces[-1] += script[at + 1 : end]
            at, is_open = end + 1, True
        elif char == '"':
            at = _quoted(script, at + 1, pieces, known, arguments)
            is_open = True
        elif char in "$`":
            values, at = _expanded(script, at, known, arguments)
            split = [part for value in values for part in _split(value)]
            _join(pieces, split)
        else:
            pieces[-1] += char
            at += 1
    is_nothing = pieces == [""] and not is_open
    return _Scan(() if is_nothing else tuple(pieces), at)


def _quoted(
    script: str, at: int, pieces: list[str], known: Mapping[str, str], arguments: Sequence[str]
) -> int:
    while at < len(script) and script[at] != '"':
        char = script[at]
        if char == "\\" and script[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            pieces[-1] += "" if script[at + 1] == "\n" else script[at + 1]
            at += 2
        elif char in "$`":
            is_all = script.startswith(("$@", "${@}"), at)
            values, at = _expanded(script, at, known, arguments)
            _join(pieces, values if is_all else [" ".join(values)])
        else:
            pieces[-1] += char
            at += 1
    return at + 1


def _split(value: str) -> list[str]:
    """The words of a value that no quotes hold together; what is not known yet stays one."""
    return [value] if value.startswith(UNKNOWN) else value.split()


def _join(pieces: list[str], more: Sequence[str]) -> None:
    """Put the first to the word that is being read; each further one begins a word."""
    for number, piece in enumerate(more):
        if number == 0:
            pieces[-1] += piece
        else:
            pieces.append(piece)


def _expanded(
    script: str, at: int, known: Mapping[str, str], arguments: Sequence[str]
) -> tuple[list[str], int]:
    """What stands for a `$...` or a backquote, and the place behind it."""
    if script[at] == "`":
        end = script.find("`", at + 1)
        end = len(script) if end < 0 else end + 1
        return [f"$({script[at + 1 : end - 1].strip()})"], end
    after = script[at + 1 : at + 2]
    if after == "(":
        end = _closing(script, at + 1, "(", ")")
        return [script[at:end]], end
    if after == "{":
        end = _closing(script, at + 1, "{", "}")
        return _value(script[at + 2 : end - 1], script[at:end], known, arguments), end
    if after in "@*#?$!-" and after:
        return _value(after, script[at : at + 2], known, arguments), at + 2
    end = at + 1
    while end < len(script) and (script[end].isalnum() or script[end] == "_"):
        end += 1
        if script[at + 1].isdigit():
            break
    if end == at + 1:
        return ["$"], end
    return _value(script[at + 1 : end], script[at:end], known, arguments), end


def _closing(script: str, at: int, opens: str, closes: str) -> int:
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(script)):
        depth += (script[place] == opens) - (script[place] == closes)
        if depth == 0:
            return place + 1
    return len(script)


def _value(
    inside: str, written: str, known: Mapping[str, str], arguments: Sequence[str]
) -> list[str]:
    if inside in ("@", "*"):
        return list(arguments)
    if inside.isdigit() and inside != "0":
        place = int(inside) - 1
        return [arguments[place]] if place < len(arguments) else []
    for mark in (":-", ":=", "-", "="):
        name, found, default = inside.partition(mark)
        if found and name.isidentifier():
            value = known.get(name)
            return [
                value if value or (value is not None and mark in "-=") else default.strip("\"'")
            ]
    return [known[inside]] if inside in known else [written]
