"""What alembic runs: the caller's connection, inside the caller's transaction."""

from alembic import context

from prefrl.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",  # SQLite cannot alter a column in place
)
with context.begin_transaction():
    context.run_migrations()
