"""Apply numbered .sql files once, in order."""

from importlib.resources import files

import apsw

from courier.core.errors import StoreUnavailable


def migrate(db: apsw.Connection, package: str) -> None:
    """Apply those of the package's `migrations/*.sql` that the database has not had yet."""
    scripts = sorted(
        (
            entry
            for entry in files(package).joinpath("migrations").iterdir()
            if entry.name.endswith(".sql")
        ),
        key=lambda entry: entry.name,
    )
    version = int(db.execute("PRAGMA user_version").get)
    if version > len(scripts):
        raise StoreUnavailable(
            f"it was written by a newer Courier (schema {version}, this one knows {len(scripts)})"
        )
    for number, script in enumerate(scripts[version:], start=version + 1):
        with db:
            db.execute(script.read_text())
            db.execute(f"PRAGMA user_version = {number:d}")
