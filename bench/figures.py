"""Which figures the report shows, in which words: (case, figure, what it is, unit).

A figure that a run does not have is left out. Imported by the report.
"""

from __future__ import annotations

from typing import Final

LIMITS: Final = (
    ("disk", "fsync_us", "fsync after 600 bytes", "us"),
    ("disk", "commit_us", "SQLite commit, one row, WAL, FULL", "us"),
    ("disk", "unsynced_commit_us", "the same without waiting for the disk", "us"),
    ("group_16", "direct_per_s", "16 writers, one commit after the other", "commits/s"),
    ("group_16", "group_per_s", "16 writers, sharing commits", "commits/s"),
    ("group_64", "group_per_s", "64 writers, sharing commits", "commits/s"),
    ("decoding", "read_per_s", "reading a journal's rows", "events/s"),
    ("decoding", "loads_per_s", "and decoding both columns", "events/s"),
    ("decoding", "chain_per_s", "and hashing them into a chain", "events/s"),
    ("decoding", "pydantic_per_s", "or validating with pydantic", "events/s"),
)
OURS: Final = (
    *((("c1", f"port_{n}_us", f"C1 commit of {n} events through the port", "us")) for n in (1, 3, 5, 20)),
    *((("c1", f"raw_{n}_us", f"C1 the same bytes, bare SQLite, {n} rows", "us")) for n in (1, 3, 5, 20)),
    ("c1", "fenced_3_us", "C3 commit of 3 events, fenced", "us"),
    ("c2_16", "per_s", "C2 16 sessions commit", "commits/s"),
    ("c2_64", "per_s", "C2 64 sessions commit", "commits/s"),
    ("c2_64", "p99_ms", "C2 64 sessions, 99 of 100 commits within", "ms"),
    ("c2_64", "unfair", "C2 64 sessions, slowest over quickest", ""),
    ("postgres", "raw_us", "C1 PostgreSQL, one bare INSERT of 3 rows", "us"),
    ("postgres", "commit_us", "C1 PostgreSQL, commit of 3 events through the port", "us"),
    ("postgres", "fenced_us", "C3 PostgreSQL, the same, fenced", "us"),
    ("postgres", "round_trips", "C3 PostgreSQL, round trips of a fenced commit", ""),
    ("postgres", "beside", "C3 PostgreSQL, further ones that nobody waits for (readers are woken)", ""),
    *(
        row
        for n in (16, 64)
        for row in (
            (f"postgres_{n}", "per_s", f"C2 PostgreSQL, {n} sessions commit", "commits/s"),
            (f"postgres_{n}", "raw_per_s", "C2 bare INSERTs over as many connections", "commits/s"),
            (f"postgres_{n}", "raw_own_per_s", f"C2 bare INSERTs over {n} connections", "commits/s"),
        )
    ),
    *(
        row
        for case, name in (("lease_sqlite", "SQLite"), ("lease_postgres", "PostgreSQL"))
        for row in (
            (case, "renew_us", f"L1 {name}, renewing a lease", "us"),
            (case, "raw_us", f"L1 {name}, one bare UPDATE", "us"),
            (case, "renew_per_s", f"L1 {name}, renewals of 64 sessions at once", "leases/s"),
            (case, "takeover_per_s", f"L1 {name}, takeovers of 64 sessions at once", "leases/s"),
        )
    ),
    ("postgres_t_1", "ms", "T1 a whole request on PostgreSQL", "ms"),
    ("postgres_t_16", "per_s", "T2 16 sessions on PostgreSQL", "requests/s"),
    ("postgres_t_64", "per_s", "T2 64 sessions on PostgreSQL", "requests/s"),
    ("t4_first", "ms", "T4 first piece after sending", "ms"),
    ("t4_first", "bare_ms", "T4 the same, one commit and bare HTTP", "ms"),
    ("t4_fan_out", "one_us", "T4 a piece to one reader", "us"),
    ("t4_fan_out", "further_us", "T4 to each further reader", "us"),
    ("r2_small", "ms", "R2 plan, small journal", "ms"),
    ("r2_large", "ms", "R2 plan, large journal", "ms"),
    ("p1", "one_per_s", "P1 replay, one read model", "events/s"),
    ("p1", "all_per_s", "P1 replay, all read models", "events/s"),
    ("p1", "chain_per_s", "P1 verify, the chain alone", "events/s"),
    ("p1", "verified_per_s", "P1 verify, chain and rules", "events/s"),
    ("p3", "ms", "P3 `recovery inspect`, cold", "ms"),
    ("p3", "imports_ms", "P3 its imports alone", "ms"),
    ("i1", "ms", "I1 `import minutebook`", "ms"),
    ("i1", "modules", "I1 modules it loads", ""),
    ("m1", "kib_per_request", "M1 memory for each request of a session", "KiB"),
)
