"""Names of the branches and tags that are the sink's own: its commits set and remove them."""

from __future__ import annotations

import hashlib
from typing import Final

OWN_REFS: Final = "connect-py-"  # begins them all
UNPUBLISHED_PREFIX: Final = f"{OWN_REFS}unpublished-"
BEFORE_TAG: Final = f"{OWN_REFS}before-rebuild"  # at the state that a rebuild replaced
REBUILT_BRANCH: Final = f"{OWN_REFS}rebuilt"  # of `connect-py rebuild`


def scratch_prefix(connect_group: str) -> str:
    """Return the prefix of the scratch branches that earlier releases created for a connector (rule
    40).

    It contains a hash, because the name of one group may be a prefix of another.
    """
    return f"{OWN_REFS}scratch-{_digest(connect_group)}-"


def ledger_tag(connect_group: str) -> str:
    """The tag at a connector's last commit, where its tables are maintained: an expiry leaves that
    snapshot."""
    return f"{OWN_REFS}last-{_digest(connect_group)}"


def unpublished_branch(connect_group: str) -> str:
    """The branch of commits that readers do not see: see `unpublished_commits`."""
    return f"{UNPUBLISHED_PREFIX}{_digest(connect_group)}"


def _digest(connect_group: str) -> str:
    return hashlib.sha256(connect_group.encode()).hexdigest()[:12]
