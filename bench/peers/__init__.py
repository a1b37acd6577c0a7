"""The same conversation in other libraries, each in its documented default.

A module here is run by an interpreter that has the library (`bench/peers.toml`).
It imports nothing of minutebook. Where the library is missing it is skipped.
"""
