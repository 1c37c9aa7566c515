"""Apply numbered .sql files once, in order."""

from importlib.resources import files

import apsw

from courier.core.errors import StoreUnavailable


def migrate(db: apsw.Connection, package: str, *, base: int = 0) -> None:
    """Apply those of the package's `migrations/*.sql` that the database has not had yet.

    Their schema numbers begin after `base`; a database with a lower one is another store's.
    """
    scripts = sorted(
        (
            entry
            for entry in files(package).joinpath("migrations").iterdir()
            if entry.name.endswith(".sql")
        ),
        key=lambda entry: entry.name,
    )
    found = int(db.execute("PRAGMA user_version").get)
    if 0 < found <= base:
        raise StoreUnavailable(
            "it was written by an earlier Courier and cannot be read by this one; go on with the "
            "earlier version, or start with an empty data directory"
        )
    version = max(0, found - base)
    if version > len(scripts):
        raise StoreUnavailable(
            f"it was written by a newer Courier (schema {found}, this one knows "
            f"{base + len(scripts)})"
        )
    for number, script in enumerate(scripts[version:], start=version + 1):
        with db:
            db.execute(script.read_text())
            db.execute(f"PRAGMA user_version = {base + number:d}")
