"""Which keys of configurations name secrets, by their names: for those who show configurations to people."""

from __future__ import annotations

import re
from typing import Final

SECRET_KEY: Final = re.compile(
    r"password|passphrase|secret|token|credential|jaas|access-?key|account-?key|api-?key|user\.?info", re.IGNORECASE
)
"""Found somewhere in a key, its value is not shown. The page uses it in a browser: only what both languages know."""
