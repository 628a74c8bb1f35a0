"""Which keys of configurations name secrets, by their names, and which parts of URLs are secrets:
to hide them.

The page uses the patterns in a browser: they are written as both languages know them, and ignore
case in both.
"""

from __future__ import annotations

import re
from typing import Final

SECRET_KEY: Final = re.compile(
    r"password|passphrase|secret|token|credential|jaas|authorization|user\.?info|connection[-._]?string|cryption-key"
    r"|(?:access|account|api|keystore|private|secret|sse)[-._]?key(?!provider|s(?!\w))|shared[-._]?key(?![-._])",
    re.IGNORECASE,
)
"""Found somewhere in a key, its value is not shown."""
URL_PASSWORD: Final = re.compile(
    r"(://[^\s/?#@:'\"]*:)(?:[^\s/?#@'\"]|['\"](?=\w))+@", re.IGNORECASE
)
"""Replaced by its first group, a mask and `@`. A quote ends an URL, unless a letter follows."""
SECRET_MEMBER: Final = re.compile(
    rf"((?:(?:^|[?&;'\"])[\w.%-]{{0,60}}(?:{SECRET_KEY.pattern})|[?&;](?:key|sig|(?:x-amz-)?signature))=)"
    r"(?:[^\s&;'\"]|['\"](?=\w))+",
    re.IGNORECASE,
)
"""Replaced by its first group and a mask: `?api_key=…`, `;AccountKey=…`."""
