"""Names of the branches and tags that the sink's commits create and remove."""

from __future__ import annotations

import hashlib
from typing import Final

OWN_REFS: Final = "connect-py-"  # prefix of all names
UNPUBLISHED_PREFIX: Final = f"{OWN_REFS}unpublished-"
BEFORE_TAG: Final = f"{OWN_REFS}before-rebuild"  # tag on the snapshot that a rebuild replaced
REBUILT_BRANCH: Final = f"{OWN_REFS}rebuilt"  # branch that `connect-py rebuild` commits to


def scratch_prefix(connect_group: str) -> str:
    """Return the prefix of the scratch branches that earlier releases created.

    Commits remove these branches (rule 40 of the commit protocol). The prefix contains a hash,
    because the name of one group may be a prefix of the name of another group.
    """
    return f"{OWN_REFS}scratch-{_digest(connect_group)}-"


def ledger_tag(connect_group: str) -> str:
    """Return the name of the tag that protects a connector's last commit from expiration.

    Only connectors that maintain their tables set it.
    """
    return f"{OWN_REFS}last-{_digest(connect_group)}"


def unpublished_branch(connect_group: str) -> str:
    """Return the name of the branch for commits awaiting approval (`unpublished_commits`)."""
    return f"{UNPUBLISHED_PREFIX}{_digest(connect_group)}"


def _digest(connect_group: str) -> str:
    return hashlib.sha256(connect_group.encode()).hexdigest()[:12]
