"""Patterns that recognize secrets in configurations and URLs.

The web UI uses the same patterns. They are therefore valid in both Python and JavaScript, and
ignore case.
"""

from __future__ import annotations

import re
from typing import Final

SECRET_KEY: Final = re.compile(
    r"password|passphrase|secret|token|credential|jaas|authorization|user\.?info|connection[-._]?string|cryption-key"
    r"|(?:access|account|api|keystore|private|secret|sse)[-._]?key(?!provider|s(?!\w))|shared[-._]?key(?![-._])",
    re.IGNORECASE,
)
"""Matches a substring of the name of a config key if the key's value is secret."""
URL_PASSWORD: Final = re.compile(
    r"(://[^\s/?#@:'\"]*:)(?:[^\s/?#@'\"]|['\"](?=\w))+@", re.IGNORECASE
)
"""Matches a URL from `://` to the end of its password. A match is replaced with its first group, a
mask, and `@`. A quote ends a URL unless a word character follows."""
SECRET_MEMBER: Final = re.compile(
    rf"((?:(?:^|[?&;'\"])[\w.%-]{{0,60}}(?:{SECRET_KEY.pattern})|[?&;](?:key|sig|(?:x-amz-)?signature))=)"
    r"(?:[^\s&;'\"]|['\"](?=\w))+",
    re.IGNORECASE,
)
"""Matches a secret query parameter or connection string property, such as `?api_key=…` or
`;AccountKey=…`. A match is replaced with its first group and a mask."""
