"""Why a command ends early. The message is one line for the person at the keyboard.

Stop              never raised itself
  Failed          it could not be done              exit status 1
  Misused         cannot be run as it was given     exit status 2
  Unreachable     no answer from the server         exit status 3
"""


class Stop(Exception):
    """A failure that was to be expected: it is shown without a traceback."""

    status = 1


class Failed(Stop):
    status = 1


class Misused(Stop):
    status = 2


class Unreachable(Stop):
    status = 3
