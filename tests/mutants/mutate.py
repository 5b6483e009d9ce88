"""What can be changed in a C++ file so that a test should notice. Works on tokens, without a compiler: it relies on clang-format, which puts
spaces around a comparison and none around the brackets of a template. What does not compile, the caller throws away.

Never touched: comments, strings, preprocessor lines, what is logged, LOCKSTEP_CHECK and static_assert.
"""
import dataclasses
import difflib
import re

LEXER = re.compile(r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<string>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]*)\(.*?\)(?P=fence)"|(?:u8|[uUL])?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<operator><=>|<<=|>>=|\.\.\.|->\*?|::|\+\+|--|<<|&&|\|\||[-+*/%&|^!=<>]=|.)
""", re.VERBOSE | re.DOTALL | re.MULTILINE)

COMPARISONS = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"]}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "+=": "-=", "-=": "+="}
WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
COMMUTATIVE = {"min", "max", "swap"}
CLOSING = {"(": ")", "[": "]", "{": "}"}
KEYWORDS = {"if", "for", "while", "switch", "return", "case", "using", "catch", "else", "do", "goto", "throw", "delete", "new", "sizeof", "const",
            "auto", "static", "constexpr", "struct", "class", "enum", "namespace", "template", "typedef", "public", "private", "default"}
LEFT_ALONE = {"LOCKSTEP_CHECK", "static_assert", "log"}


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str  # word, number, string or operator
    text: str
    begin: int
    end: int
    spaced: bool  # white space before and after it


@dataclasses.dataclass(frozen=True)
class Mutant:
    kind: str  # comparison, arithmetic, constant, deletion or swap
    begin: int
    end: int
    text: str  # instead of what lies between

    def of(self, source):
        return source[:self.begin] + self.text + source[self.end:]

    def diff(self, source, path):
        return "".join(difflib.unified_diff(source.splitlines(True), self.of(source).splitlines(True), path, path, n=1))


def tokens(source):
    return [Token(match.lastgroup if match.lastgroup != "fence" else "string", match.group(), match.start(), match.end(),
                  source[match.start() - 1:match.start()].isspace() and source[match.end():match.end() + 1].isspace())
            for match in LEXER.finditer(source) if match.lastgroup != "space"]


def partners(found):
    """{index of an opening bracket: index of the one that closes it}"""
    closes, opened = {}, []
    for index, token in enumerate(found):
        if token.kind != "operator":
            continue
        if token.text in CLOSING:
            opened.append(index)
        elif opened and token.text == CLOSING[found[opened[-1]].text]:
            closes[opened.pop()] = index
    return closes


def bodies(found, closes):
    """Of each token, whether it lies in a function's body, and not in a type or in a list of values inside of it."""
    inside = [False] * len(found)
    for opening in sorted(closes):
        if found[opening].text != "{" or opening == 0:
            continue
        before = found[opening - 1].text
        begins_block = before in {")", "const", "noexcept", "override", "else", "do", ":", ";", "{", "}"}
        is_body = begins_block and (before in {")", "const", "noexcept", "override"} or inside[opening])
        for index in range(opening + 1, closes[opening]):
            inside[index] = is_body
    return inside


def left_alone(found, closes):
    """Indices of the tokens in statements that no test is about."""
    alone = set()
    for index, token in enumerate(found):
        if token.text not in LEFT_ALONE or (token.text == "log" and [t.text for t in found[index + 1:index + 2]] != ["::"]):
            continue
        end = index
        while end < len(found) and found[end].text != ";":
            end = closes.get(end, end) + 1
        alone.update(range(index, end + 1))
    return alone


def another_number(text):
    match = re.fullmatch(r"(\d+)(\.\d*)?(\D*)", text)
    if not match:
        return None
    number, fraction, suffix = match.groups(default="")
    return ("0" if number == "1" and not fraction.strip(".0") else str(int(number) + 1)) + fraction + suffix


def is_expression(statement):
    """Not a declaration, which would be missed: a name or call, and then what is done with it."""
    texts = [token.text for token in statement]
    if texts in (["break"], ["continue"], ["return"]):
        return True
    if texts[0] in KEYWORDS or not (statement[0].kind == "word" or texts[0] in {"++", "--", "*", "("}):
        return False
    for one, other in zip(statement, statement[1:]):
        if one.text in {"(", "=", "+=", "-=", "|=", "++", "--"}:
            return True
        if other.kind == "word" and (one.kind == "word" or one.text in {">", "&", "*", "&&"}) and one is not statement[0]:
            return False
        if other.kind == "word" and one.kind == "word":
            return False
    return True


def begins_statement(found, opens, index):
    """Whether a statement may begin here: at the start of a block, after another one, a condition or a label."""
    before = found[index - 1].text if index else ""
    if before == ")":
        return found[opens[index - 1] - 1].text in {"if", "for", "while"}
    if before == ":":
        label = index - 2
        while found[label].kind == "word" and found[label].text not in {"case", "default"} or found[label].text == "::":
            label -= 1
        return found[label].text in {"case", "default"}
    return before in {";", "{", "}", "else"}


def deletions(found, closes, inside):
    opens = {closing: opening for opening, closing in closes.items()}
    for index, token in enumerate(found):
        if not inside[index] or not begins_statement(found, opens, index):
            continue
        end = index
        while end < len(found) and found[end].text not in {";", *CLOSING.values()}:
            end = closes.get(end, end) + 1
        if end < len(found) and found[end].text == ";" and end > index and is_expression(found[index:end]):
            yield Mutant("deletion", token.begin, found[end].begin, "")


def arguments(found, closes, opening):
    """[(index of the first token, index behind the last)]"""
    parts, begin, index = [], opening + 1, opening + 1
    while index < closes[opening]:
        if found[index].text == ",":
            parts.append((begin, index))
            begin = index + 1
        index = closes.get(index, index) + 1
    return [*parts, (begin, index)]


def swaps(source, found, closes, inside):
    for opening in closes:
        called = found[opening - 1]
        if found[opening].text != "(" or not inside[opening] or called.kind != "word" or called.text in KEYWORDS | COMMUTATIVE:
            continue
        parts = arguments(found, closes, opening)
        texts = [source[found[first].begin:found[last - 1].end] if first < last else "" for first, last in parts]
        for (first, middle), one, other in zip(zip(parts, parts[1:]), texts, texts[1:]):
            is_range = one.endswith("begin()") and other.endswith("end()")
            if one and other and one != other and not is_range and "{" not in one + other:
                between = source[found[first[1] - 1].end:found[middle[0]].begin]
                yield Mutant("swap", found[first[0]].begin, found[middle[1] - 1].end, other + between + one)


def mutants(source):
    """All of a file, in the order of their places."""
    found = tokens(source)
    closes = partners(found)
    inside = bodies(found, closes)
    alone = left_alone(found, closes)
    named = {}  # a constant's scope → its constants
    for index, token in enumerate(found):
        if re.fullmatch(r"k[A-Z]\w*", token.text):
            named.setdefault(found[index - 2].text if found[index - 1].text == "::" else "", set()).add(token.text)
    changes = [*deletions(found, closes, inside), *swaps(source, found, closes, inside)]
    for index, token in enumerate(found):
        before, after = (found[near].text if 0 <= near < len(found) else "" for near in (index - 1, index + 1))
        if token.kind == "number" and another_number(token.text):
            changes.append(Mutant("constant", token.begin, token.end, another_number(token.text)))
        if token.kind == "word" and token.text in WORDS and (token.text in {"true", "false"} or (before == "::" and after == "(")):
            changes.append(Mutant("constant", token.begin, token.end, WORDS[token.text]))
        if token.kind == "word" and re.fullmatch(r"k[A-Z]\w*", token.text) and inside[index]:
            others = sorted(named[found[index - 2].text if before == "::" else ""])
            if len(others) > 1 and found[index - 3].text != "case":
                changes.append(Mutant("constant", token.begin, token.end, others[(others.index(token.text) + 1) % len(others)]))
        if token.kind != "operator" or not inside[index] or before == "operator":
            continue
        joins_text = "string" in {found[near].kind for near in (index - 1, index + 1) if 0 <= near < len(found)}
        if token.spaced and not joins_text:
            changes += [Mutant("comparison", token.begin, token.end, other) for other in COMPARISONS.get(token.text, [])]
            changes += [Mutant("arithmetic", token.begin, token.end, ARITHMETIC[token.text])] if token.text in ARITHMETIC else []
        elif token.text == "!":
            changes.append(Mutant("comparison", token.begin, token.end, ""))
        elif token.text in {"++", "--"}:
            changes.append(Mutant("arithmetic", token.begin, token.end, "--" if token.text == "++" else "++"))
    spans = [(found[index].begin, found[index].end) for index in alone]
    return sorted((change for change in changes if not any(change.begin < end and begin < change.end for begin, end in spans)),
                  key=lambda change: (change.begin, change.end, change.text))
