"""Runs migration steps on the connection that ``mirage.store.schema`` hands over."""

from __future__ import annotations

from alembic import context

from mirage.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
# The transaction is the caller's: all steps together happen, or none.
context.run_migrations()
