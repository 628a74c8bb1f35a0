"""The process that may crash: it runs case after case, and reports its progress on standard output
as lines of JSON.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[1]),
    str(Path(__file__).parents[1] / "fixtures"),
]

import pyarrow.compute  # noqa: E402, F401 - loaded here to exclude it from the memory of a case
from fuzz_forms import Different, compare  # noqa: E402
from fuzz_planted import PLANTED  # noqa: E402
from fuzz_target import Case, FuzzTarget  # noqa: E402
from fuzz_targets import TARGETS  # noqa: E402

ROOM = 1 << 31  # bytes of addresses that a case may take
RESIDENT = 1 << 30  # bytes of memory that cases may leave behind, all of a child together
OWN_FRAMES = 6  # of a trace, which distinguish findings


def say(**what: Any) -> None:
    """Write one line to the watching process."""
    print(json.dumps(what), flush=True)


def random_of(target: str, seed: int, number: int) -> Random:
    """The random numbers of a case, which depend on nothing else."""
    return Random(f"{target} {seed} {number}")


def run(target: FuzzTarget, seed: int, number: int) -> None:
    """Compare the forms of one case."""
    case = Case({}, ())
    try:
        case = target.case(random_of(target.name, seed, number), number)
        tally = compare(target, case)
    except Different as error:
        say(
            finding="differs",
            case=number,
            where=str(error).splitlines()[0].split(":")[0],
            detail=str(error),
            what=case.what,
        )
    except AssertionError as error:
        say(
            finding="inconsistent",
            case=number,
            where=_place(error),
            detail=traceback.format_exc(),
            what=case.what,
        )
    except BaseException as error:  # noqa: BLE001 - a panic of a library is one, and all of them are findings
        say(
            finding=type(error).__name__,
            case=number,
            where=_place(error),
            detail=traceback.format_exc(),
            what=case.what,
        )
    else:
        say(done=number, tally=asdict(tally))


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " ".join(f"{Path(frame.filename).name}:{frame.name}" for frame in frames[-OWN_FRAMES:])


def _memory() -> tuple[int, int]:
    """Bytes of addresses, and of memory, that this process has."""
    pages = Path("/proc/self/statm").read_text().split()
    return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()


def main(name: str, seed: int, first: int, last: int, seconds: float) -> None:
    """Read the cases from `first` up to `last`, each in at most so many seconds."""
    targets = {target.name: target for target in (*TARGETS, *PLANTED)}
    target = targets[name]()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, loaded = _memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this
    for number in range(first, last):
        say(begins=number)
        addresses, resident = _memory()
        if resident - loaded > RESIDENT:
            say(
                finding="memory",
                case=number,
                where="before the case",
                detail=f"{resident - loaded} bytes",
                what="",
            )
            loaded = resident
        # Allocators and thread pools retain addresses; the limit is relative to the start of a
        # case.
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ROOM, resource.RLIM_INFINITY))
        faulthandler.dump_traceback_later(seconds, exit=True)
        run(target, seed, number)
        faulthandler.cancel_dump_traceback_later()
    say(ended=True)


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
