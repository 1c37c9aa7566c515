"""Spark's daemon that forks Python workers on this machine, and ignores SIGTERM as Java does.

A supervisor that ends a unit sends SIGTERM to all of its processes, while the batch that the
workers are at is still finished. Java ends the daemon by closing its stdin.
"""

import signal

from pyspark import daemon

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The daemon and its workers set handlers for this name. No one sends the signal that it is now.
    vars(daemon)["SIGTERM"] = signal.SIGUSR2
    daemon.manager()
