"""The data plane without I/O: sessions, routing, flows, scheduling. Takes `now` as an argument."""
