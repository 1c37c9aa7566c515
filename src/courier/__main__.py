"""`python -m courier`: the same as the command `courier`."""

import sys

from courier.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
