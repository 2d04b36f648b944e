"""A cluster's configuration from files: TOML, presets, a site's own slurm.conf."""
