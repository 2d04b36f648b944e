"""What must survive a restart, in SQLite or PostgreSQL. Dumb: no policy."""
