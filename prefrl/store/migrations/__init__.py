"""Alembic's scripts, one file per revision of the schema; `prefrl.store.migrate` runs them."""
