"""`courier`, and `python -m courier`: heeds Ctrl-C from the first moment, then loads the rest."""

import os
import signal
import sys

INTERRUPTED = 130


def _leave(*_: object) -> None:
    """End at once. An exception in the midst of loading would be shown at length, or be lost."""
    try:
        os.write(2, b"courier: interrupted\n")
    finally:  # nobody may be there to read it
        os._exit(INTERRUPTED)


def main() -> int:
    """Run one command and return its exit status."""
    # A shell may start its background jobs with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    # The first process of a container is sent SIGTERM in vain, unless it has a handler.
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _leave)
    from courier.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
