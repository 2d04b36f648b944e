"""slurmrestd's JSON, pure: every version's records lifted to the newest shape, and descriptions lowered from it.

``versions`` knows the versions, ``lifting`` and ``lowering`` are the steps between them, ``queue``, ``nodes`` and
``history`` read the newest shape, ``description`` and ``options`` write it, ``faults`` reads lists of errors.
"""
