"""Texts that terminals, engines, encoders and readers of JSON stumble over. Plain data, always the same.

Imported by everything of `tests/corpus`. What is done with a text is never decided here.
"""

from __future__ import annotations

import unicodedata
from typing import Final

ESC: Final = "\x1b"

#: Each is short enough to be an argument, a reason or a name.
TEXTS: Final[dict[str, str]] = {
    "empty": "",
    "space": " \t ",
    "NUL": "a\0b",
    "only NUL": "\0",
    "all controls": "".join(map(chr, [*range(32), *range(0x7F, 0xA0)])),
    "high surrogate": "a\ud800b",
    "low surrogate": "\udfff",
    "surrogates in a row": "\ud83d\ude00",
    "surrogates the wrong way round": "\ude00\ud83d",
    "escaped byte of a file name": "\udcff\udc80",
    "surrogate and backslashes": "\\ud800 \ud800 \\\\",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "byte order marks": "\ufeffa\ufffe\uffffb",
    "red": f"{ESC}[31;1mred{ESC}[0m",
    "clears the screen": f"{ESC}[2J{ESC}[H{ESC}c",
    "OSC 0 title": f"{ESC}]0;pwned\x07",
    "OSC 8 link": f"{ESC}]8;;http://evil.example/\x07click{ESC}]8;;\x07",
    "OSC 52 clipboard": f"{ESC}]52;c;cm0gLXJmIH4=\x07",
    "C1 control sequence": "\x9b31m\x9d52;c;QQ==\x9c",
    "device status": f"{ESC}[6n{ESC}P$q q{ESC}\\",
    "carriage return": "harmless\rrm -rf ~",
    "backspaces": "allow\b\b\b\b\bdeny ",
    "right to left": "\u202etxt.exe\u202c",
    "isolates": "\u2066a\u2067b\u2068c\u2069",
    "arabic letter mark": "\u061ca\u200eb\u200fc",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg",
    "tag characters": "\U000e0001\U000e0041\U000e007f",
    "variation selectors": "a\ufe0f\U000e0100",
    "combining": "z" + "\u0335\u0336\u0337" * 50,
    "blank letters": "\u115f\u3164\uffa0\u2800",
    "private and unassigned": "\ue000\U000f0000\U0010ffff\u0378",
    "emoji of many": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "wide": "漢字かなカナ한글",
    "decomposed": "e\u0301 \u1100\u1161",
    "look-alike letters": "аdmіn раypal",  # noqa: RUF001  # Cyrillic on purpose
    "folds to another": "İıſK\u212aﬀß",  # noqa: RUF001
    "our own mark": '{"$mb":"bytes","v":"AAAA"}',
    "langchain constructor": '{"lc":2,"type":"constructor","id":["os","system"],"kwargs":{}}',
    "python object": "!!python/object/apply:os.system ['id']",
    "class": "__class__.__init__.__globals__",
    "format string": "{0.__class__} %s %n ${x} $(id) `id`",
    "rich markup": "[bold red]x[/] [link=http://evil.example]y[/link] [/]",
    "script": "<script>alert(1)</script>",
    "broken html": "</pre><img src=x onerror=alert(1)>&lt;&amp;\"'",
    "csv formula": "=cmd|'/C calc'!A0",
    "csv plus minus at": '+1+1\t-1\t@SUM(A1)\t"=1"',
    "sql": "'; DROP TABLE minutebook_events; --",
    "shell": "$(rm -rf ~); `id` | & > /dev/null\n",
    "path up": "../../etc/passwd",
    "file url": "file:///etc/passwd",
    "device": "CON",
    "event stream": "data: [DONE]\n\ndata: {}\r\n\r\n",
    "journal line": '\n{"trailer":{"session_id":"s1","events":1,"bytes":1,"head":"00"}}\n',
    "numbers": "1e999 NaN -0.0 Infinity 0x1F",
    "quotes": "\"'`\u201c\u201d\\",
    "a thousand": "x" * 1000,
}

#: Bytes that are no UTF-8, or only nearly.
RAW_BYTES: Final[dict[str, bytes]] = {
    "overlong slash": b"..\xc0\xaf..\xe0\x80\xaf",
    "overlong NUL": b"a\xc0\x80b",
    "surrogate as UTF-8": b"\xed\xa0\x80\xed\xb0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80\xf8\x88\x80\x80\x80",
    "cut inside a character": "ä€\U0001f600".encode()[:-1],
    "lone continuation": b"\x80\xbf",
    "every byte": bytes(range(256)),
    "UTF-16": "wide".encode("utf-16"),
    "gzip": b"\x1f\x8b\x08\x00",
    "NULs": bytes(1000),
}

#: What a terminal must not be given from outside, apart from line ends.
HARMFUL_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def harmful(text: str) -> list[str]:
    """The characters of a text that would do something to a terminal, or hide in it."""
    return sorted({c for c in text if c != "\n" and unicodedata.category(c) in HARMFUL_CATEGORIES})


def all_in_one() -> str:
    """Every short text after the other, for places that hold one text only."""
    return " | ".join(text for text in TEXTS.values() if len(text) < 1000)
