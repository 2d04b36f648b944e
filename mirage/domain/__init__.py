"""Values and rules: standard library and numpy only, no IO, no clock, no randomness."""
