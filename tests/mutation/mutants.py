# SPDX-License-Identifier: Apache-2.0
"""One-line mutants of C++ source. Pure functions of text: each changes what a line does, as a slip of the pen would."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Mutant:
    line: int  # from 1
    old: str  # without the indentation
    new: str  # empty: the statement is left out


# The sources are formatted, so a binary operator has a space on either side, and the bracket of a template has none.
_REPLACEMENTS = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" \+ ", " - "), (r" - ", " + "), (r" / ", " * "), (r" % ", " / "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r" && ", " || "), (r" \|\| ", " && "), (r"\breturn true;", "return false;"), (r"\breturn false;", "return true;"),
    (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"), (r"\bstd::all_of\b", "std::any_of"),
    (r"\bstd::any_of\b", "std::all_of"), (r"\bif \((?=.*\) (\{|return|continue|break))", "if (not "),
    (r"(?<![\w.'\"\[])[0-9]+(?![\w.'])", None),  # another number
]
_NOT_CODE = re.compile(r"\s*(#|//|\*|static_assert|using |namespace |template|case |public:|private:|extern )")
_STATEMENT = re.compile(r"(?!return\b|delete\b|throw\b|co_)(\+\+|--)?[\w:.>\-\[\]()*]+(\(.*\)| [+\-*/|&]?= .+|\+\+|--)?;")


def of(text):
    """All mutants of the text of a source file, in the order of its lines."""
    found, before = [], "{"
    for number, line in enumerate(text.splitlines(), 1):
        code = _without_text(line)
        old = code.strip()
        if old and not _NOT_CODE.match(line):
            indentation = len(line) - len(line.lstrip())
            found += [Mutant(number, line.strip(), new) for new in _changed(code[indentation:], line[indentation:].rstrip())]
            if before[-1] in ";{}" and indentation and _STATEMENT.fullmatch(old) and old.count("(") == old.count(")"):
                found.append(Mutant(number, line.strip(), ""))
        before = old or before
    return found


def apply(text, mutant):
    lines = text.splitlines(keepends=True)
    place = mutant.line - 1
    assert lines[place].strip() == mutant.old
    lines[place] = lines[place].replace(mutant.old, mutant.new or ";")
    return "".join(lines)


def _without_text(line):
    """The line with blanks for what strings, characters and a comment hold, so that columns stay."""
    blank = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', lambda found: '"' + "\0" * (len(found[0]) - 2) + '"', line)
    return blank.partition("//")[0].rstrip()


def _changed(code, line):
    for pattern, replacement in _REPLACEMENTS:
        for found in re.finditer(pattern, code):
            new = replacement or str(int(found[0]) + 1)
            rest = line[found.end():]
            if replacement == "if (not ":
                close = _closing(code, found.end())
                new, rest = "if (!(", line[found.end():close] + ")" + line[close:]
            yield line[:found.start()] + new + rest


def _closing(code, begin):
    """Where the bracket closes whose content begins at `begin`."""
    depth = 1
    for place in range(begin, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    return len(code)
