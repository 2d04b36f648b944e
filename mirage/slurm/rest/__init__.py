"""slurmrestd's JSON, pure: every version's records lifted to the newest shape, and descriptions lowered from it.

``versions`` has the versions and the steps between them, ``queue`` and ``history`` read the newest shape,
``description`` and ``options`` write it, ``answers`` reads fields and lists of errors.
"""
