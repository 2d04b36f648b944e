"""Policies for requests: rules, scores and searches."""
