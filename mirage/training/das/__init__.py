"""Trains DAS's agents together. Needs torch."""
