"""The recorder: what the broker did, in Parquet segments (docs/records.md).

loop's thread          headgate-feeder         encoder (a process of its own)
Tape, events ──queue──▶ Feeder ──────pipe─────▶ tables ──▶ segments ──▶ folder or object store
"""

from headgate.server.recorder.recorder import Recorder, run_name

__all__ = ["Recorder", "run_name"]
