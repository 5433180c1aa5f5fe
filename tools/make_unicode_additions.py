#!/usr/bin/env python3
"""Prints the table of src/text/unicode_additions.cc: code points that Unicode 15 to 16 added, each with an older one of its kind.

    pip install tokenizers==0.23.3       # its regular expressions know Unicode 16
    python3.11 tools/make_unicode_additions.py    # Python 3.11 knows Unicode 14
"""

import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf Co".split()
POINTS = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
ALL = "".join(map(chr, POINTS))

# An older code point of the category whose UTF-8 has 3 or 4 bytes; of a script that no pattern asks for.
REPRESENTATIVES = {
    "Lu": (0x1E00, 0x10400), "Ll": (0x1E01, 0x10428), "Lm": (0xA717, 0x10780), "Lo": (0xA840, 0x10280), "Mn": (0x1AB0, 0x101FD),
    "Mc": (0xA880, 0x11000), "Nd": (0xA8D0, 0x104A0), "Nl": (0xA6E6, 0x10140), "No": (0xA830, 0x10107), "Po": (0xA874, 0x10100),
    "Pd": (0x2E17, 0x10EAD), "Sm": (0x2A00, 0x1D6C1), "So": (0xA836, 0x10137), "Sc": (0xA838, 0x1E2FF), "Cf": (0x2060, 0x13430), "Sk": (0xA700, 0x1F3FB),
}
HAN = (0x4E00, 0x20000)
EMOJI = (0x2604, 0x1F600)


def members(expression):
    split = pre_tokenizers.Split(Regex(expression), "removed", invert=True)
    return {ord(char) for piece, _ in split.pre_tokenize_str(ALL) for char in piece}


def main():
    new = [point for point in members(r"\P{Cn}") if unicodedata.category(chr(point)) == "Cn"]
    category_of = {point: category for category in CATEGORIES for point in members(rf"\p{{{category}}}")}
    han, emoji = members(r"\p{Han}"), members(r"\p{Emoji}")
    rows = []
    for point in sorted(new):
        length = 0 if point < 0x10000 else 1
        kind = HAN if point in han and category_of[point] == "Lo" else EMOJI if point in emoji else REPRESENTATIVES[category_of[point]]
        representative = kind[length]
        assert kind in (HAN, EMOJI) or unicodedata.category(chr(representative)) == category_of[point], hex(representative)
        assert len(chr(point).encode()) == len(chr(representative).encode())
        if rows and rows[-1][1] == point - 1 and rows[-1][2] == representative:
            rows[-1][1] = point
        else:
            rows.append([point, point, representative])
    for first, last, representative in rows:
        print(f"{{0x{first:X}, 0x{last:X}, 0x{representative:X}}},", end=" ")
    print(f"\n{len(rows)} rows")


if __name__ == "__main__":
    main()
