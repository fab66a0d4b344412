"""The lake: what applications published, as tables (docs/lake.md).

captures ─▶ bronze: as published ─▶ silver: one row for each measurement ─▶ gold: by interval
                                 ─▶ quarantine: what cannot be read, and why
"""
