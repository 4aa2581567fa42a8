"""PostgreSQL's own log of an eventful hour in a minute: `python -m benchmarks.located.postgresql`.

Starts a server of its own (`initdb` and `postgres` on the path), works on it with `psql`, stops it
hard, lets it recover, and reads its CSV log, which names function, file and line with
`log_error_verbosity = verbose`. Messages that SQL functions raise themselves are left out: all come
from one place.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.located.labels import Line, write_set

SETTINGS = """
log_destination = csvlog
logging_collector = on
log_error_verbosity = verbose
log_min_messages = debug3
log_connections = on
log_disconnections = on
log_duration = on
log_lock_waits = on
log_temp_files = 0
log_checkpoints = on
log_autovacuum_min_duration = 0
log_replication_commands = on
deadlock_timeout = 100ms
autovacuum_naptime = 1s
autovacuum_vacuum_threshold = 5
autovacuum_analyze_threshold = 5
work_mem = 64kB
maintenance_work_mem = 1MB
max_wal_size = 32MB
min_wal_size = 32MB
checkpoint_warning = 10min
wal_level = logical
max_prepared_transactions = 5
archive_mode = on
archive_command = 'test ! -e %p.never && false'
track_functions = all
listen_addresses = ''
"""

BUILD = """
CREATE TABLE accounts
    (id serial PRIMARY KEY, owner text UNIQUE, balance numeric CHECK (balance >= 0));
CREATE TABLE transfers (id serial, source int REFERENCES accounts, amount numeric, at date);
CREATE INDEX CONCURRENTLY transfers_at ON transfers (at);
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE VIEW rich AS SELECT * FROM accounts WHERE balance > 100;
CREATE MATERIALIZED VIEW totals AS SELECT source, sum(amount) FROM transfers GROUP BY 1;
CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE ROLE reader LOGIN; CREATE ROLE writer; GRANT SELECT ON accounts TO reader;
CREATE SCHEMA sales; CREATE SEQUENCE sales.numbers; CREATE EXTENSION IF NOT EXISTS plpgsql;
INSERT INTO accounts (owner, balance) SELECT 'owner-' || n, n FROM generate_series(1, 3000) n;
INSERT INTO transfers (source, amount, at)
    SELECT 1 + n % 3000, n, date '2024-01-01' + n % 300 FROM generate_series(1, 30000) n;
ANALYZE; CHECKPOINT;
CREATE PUBLICATION everything FOR ALL TABLES;
SELECT pg_create_logical_replication_slot('slot_a', 'pgoutput');
SELECT pg_create_physical_replication_slot('slot_b');
"""

WORK = r"""
SELECT 1/0;
SELECT * FROM nothing_{n};
SELECT missing_{n} FROM accounts;
SELEC {n};
SELECT 'x{n}'::int;
SELECT '2024-13-{n}'::date;
SELECT nofunction_{n}(1);
SELECT 1 + 'a{n}'::text;
SELECT 9999999999::int;
SELECT repeat('x', 10)::varchar(3) || E'\xff';
SELECT '{{{n}'::json;
SELECT '{{{n}'::int[];
SELECT 'mauve'::colour;
SELECT (-{n} - 1)::positive;
SELECT '(' ~ '(';
SELECT substring('x' from 1 for -{n} - 1);
SELECT sqrt(-{n} - 1);
SELECT ln(0);
SELECT nextval('nosequence_{n}');
SELECT currval('sales.numbers');
SELECT lo_open({n}, 1);
SELECT set_config('no.such.{n}x', 'a', false), current_setting('work_mem_{n}');
SET work_mem = '{n}XB';
SET statement_timeout = '-{n}x';
INSERT INTO accounts (owner, balance) VALUES ('owner-{n}', 1);
INSERT INTO accounts (owner, balance) VALUES ('poor-{n}', -{n} - 1);
INSERT INTO accounts (id) VALUES (NULL);
INSERT INTO transfers (source, amount) VALUES (9{n}0000, 1);
INSERT INTO parts VALUES ({n}, '2031-01-01');
DELETE FROM accounts WHERE id = {n} + 1;
DROP TABLE gone_{n};
DROP TABLE IF EXISTS gone_{n};
DROP TYPE colour_{n};
DROP ROLE nobody_{n};
DROP DATABASE missing_{n};
DROP TABLE accounts;
DROP INDEX missing_{n};
DROP VIEW accounts;
CREATE TABLE accounts (id int);
CREATE TABLE IF NOT EXISTS accounts (id int);
CREATE TABLE twice_{n} (a int, a int);
CREATE TABLE side_{n} (a int PRIMARY KEY, b text DEFAULT 'x');
INSERT INTO side_{n} SELECT g, repeat('y', 50) FROM generate_series(1, 500) g;
ALTER TABLE side_{n} ADD COLUMN c int DEFAULT {n};
ALTER TABLE side_{n} ADD COLUMN a int;
ALTER TABLE side_{n} ALTER COLUMN b TYPE int USING b::int;
ALTER TABLE side_{n} ALTER COLUMN a TYPE bigint;
CREATE INDEX ON side_{n} (b);
REINDEX TABLE side_{n};
CLUSTER side_{n} USING side_{n}_pkey;
CLUSTER side_{n};
VACUUM VERBOSE side_{n};
VACUUM FULL side_{n};
ANALYZE VERBOSE side_{n};
TRUNCATE side_{n};
COMMENT ON TABLE side_{n} IS 'n';
DROP TABLE side_{n};
CREATE ROLE reader;
CREATE SCHEMA sales;
CREATE EXTENSION missing_{n};
CREATE FUNCTION bad_{n}() RETURNS int LANGUAGE cobol AS 'x';
CREATE FUNCTION bad_{n}() RETURNS int LANGUAGE plpgsql AS 'begin retur; end';
DO $$ BEGIN PERFORM 1/0; EXCEPTION WHEN others THEN NULL; END $$;
DO $$ DECLARE a int; BEGIN SELECT id INTO STRICT a FROM accounts WHERE id < 0; END $$;
DO $$ BEGIN EXECUTE 'SELECT {n} FROM'; END $$;
BEGIN; BEGIN; COMMIT; COMMIT;
ROLLBACK;
SAVEPOINT a;
BEGIN; SELECT 1/0; SELECT 1; ROLLBACK;
BEGIN; SAVEPOINT s{n}; SELECT 1/0; ROLLBACK TO s{n}; RELEASE nosave; ROLLBACK;
BEGIN; INSERT INTO accounts (owner, balance) VALUES ('two-{n}', 1); PREPARE TRANSACTION 'p{n}';
ROLLBACK PREPARED 'p{n}';
COMMIT PREPARED 'q{n}';
PREPARE q AS SELECT $1::int; EXECUTE q; EXECUTE q('z{n}'); DEALLOCATE q; DEALLOCATE q;
DECLARE c CURSOR FOR SELECT 1;
FETCH c{n};
SET ROLE reader; INSERT INTO accounts (owner) VALUES ('r{n}'); CREATE TABLE t{n} (a int);
RESET ROLE;
SET ROLE nobody_{n};
SET SESSION AUTHORIZATION reader; SELECT pg_reload_conf(); RESET SESSION AUTHORIZATION;
SET statement_timeout = 20; SELECT pg_sleep(1); RESET statement_timeout;
SELECT count(*) FROM transfers a JOIN transfers b USING (amount) JOIN accounts c ON c.id = a.source;
SELECT * FROM transfers ORDER BY md5(amount::text || '{n}') LIMIT 1 OFFSET 20000;
SELECT (SELECT id FROM accounts);
SELECT source, amount FROM transfers GROUP BY source;
SELECT sum(sum(id)) FROM accounts;
SELECT * FROM accounts a, accounts b WHERE owner = 'x{n}';
SELECT a.id FROM accounts a JOIN b_{n} USING (id);
WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT 2) SELECT * FROM r_{n};
COPY accounts FROM '/missing/{n}.csv';
COPY accounts (owner, balance) FROM PROGRAM 'echo a{n}';
COPY accounts (id, owner) FROM PROGRAM 'printf "x{n}\ty"';
COPY accounts TO '/missing/{n}.csv';
SELECT pg_terminate_backend({n});
SELECT pg_cancel_backend({n});
SELECT pg_switch_wal();
SELECT pg_advisory_unlock({n});
LISTEN channel_{n}; NOTIFY channel_{n}, 'x'; UNLISTEN *;
REFRESH MATERIALIZED VIEW totals;
REFRESH MATERIALIZED VIEW CONCURRENTLY totals;
EXPLAIN (ANALYZE, FORMAT nothing_{n}) SELECT 1;
ALTER SYSTEM SET work_mem = '{m}kB'; SELECT pg_reload_conf();
ALTER SYSTEM SET shared_buffers = '{m}MB'; SELECT pg_reload_conf();
SELECT pg_drop_replication_slot('slot_{n}');
SELECT pg_create_physical_replication_slot('slot_b');
SELECT pg_logical_slot_get_changes('slot_a', NULL, NULL);
LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE NOWAIT;
UPDATE accounts SET balance = balance + 1 WHERE id < 200;
UPDATE rich SET balance = 'much{n}';
CHECKPOINT;
"""

DEADLOCK = (
    "BEGIN; UPDATE accounts SET balance = 1 WHERE id = 2000 + {a}; SELECT pg_sleep(.2); "
    "UPDATE accounts SET balance = 1 WHERE id = 2000 + {b}; COMMIT;"
)
TERMINATE = (
    "SELECT pg_sleep(.3); SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE query LIKE '%FROM accounts;' AND pid <> pg_backend_pid();"
)


class Server:
    """A PostgreSQL server in a folder, on a socket there; as root it runs as `nobody`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._user = "nobody" if os.geteuid() == 0 else None
        self.binaries = Path(shutil.which("postgres") or "postgres").resolve().parent
        shutil.chown(folder, self._user) if self._user else None
        self.run("initdb", "--auth=trust", "--username=admin", "-D", str(self.data))
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"{SETTINGS}unix_socket_directories = '{folder}'\n")

    def start(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it answers."""
        command = [str(self.binaries / "postgres"), "-D", str(self.data)]
        process = subprocess.Popen(command, user=self._user, stderr=subprocess.DEVNULL)
        while not self.sql("SELECT 1", "postgres").stdout:
            time.sleep(0.1)
        return process

    def sql(
        self, text: str, database: str = "shop", role: str = "admin"
    ) -> subprocess.CompletedProcess[bytes]:
        """Run statements, one after the other, whatever fails."""
        command = ["psql", "-X", "-q", "-h", str(self.folder), "-U", role, "-d", database]
        return subprocess.run(command, input=text.encode(), capture_output=True, check=False)

    def run(self, name: str, *arguments: str) -> None:
        """Run one of PostgreSQL's commands."""
        subprocess.run(
            [str(self.binaries / name), *arguments],
            user=self._user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )

    def lines(self) -> Iterator[Line]:
        """Yield what it logged."""
        for path in sorted((self.data / "log").glob("*.csv")):
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                for row in csv.reader(file):
                    severity, message, place = row[11], row[13], row[21]
                    if place and not place.startswith("exec_stmt_raise"):
                        yield Line(place, f"{severity}:  {message}")


def work(server: Server, rounds: int) -> None:
    """Give the server things to log, of every kind."""
    process = server.start()
    server.sql("CREATE DATABASE shop;", "postgres")
    for statement in BUILD.split(";"):
        server.sql(statement)
    for number in range(rounds):
        server.sql(WORK.format(n=number, m=100 + number))
        server.sql("SELECT 1", f"nodatabase{number}")
        server.sql("SELECT 1", role=f"norole{number}")
        _at_once(server, [DEADLOCK.format(a=1, b=2), DEADLOCK.format(a=2, b=1)])
        _at_once(
            server,
            [
                "BEGIN; LOCK TABLE accounts; SELECT pg_sleep(.5); COMMIT;",
                "SELECT pg_sleep(.1); SET lock_timeout = 200; SELECT count(*) FROM accounts;",
                TERMINATE,
            ],
        )
        copy = server.folder / f"copy{number}"
        server.run("pg_basebackup", "-h", str(server.folder), "-U", "admin", "-D", str(copy))
        if number % 3 == 1:
            process.send_signal(signal.SIGQUIT)  # at once: it recovers when it starts again
        else:
            process.send_signal(signal.SIGINT)
        process.wait()
        process = server.start()
    process.send_signal(signal.SIGINT)
    process.wait()


def _at_once(server: Server, texts: list[str]) -> None:
    command = ["psql", "-X", "-q", "-h", str(server.folder), "-U", "admin", "-d", "shop", "-c"]
    processes = [
        subprocess.Popen([*command, text], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for text in texts
    ]
    for process in processes:
        process.wait()


def main() -> None:
    """Write `PostgreSQL.tsv.gz`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the set")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:
        folder = Path(name) / "server"
        folder.mkdir()
        Path(name).chmod(0o755)
        server = Server(folder)
        work(server, options.rounds)
        hidden = [socket.gethostname()]
        lines = (line._replace(text=line.text.replace(name, "/srv/pg")) for line in server.lines())
        print(write_set(options.folder, "PostgreSQL", lines, hidden), "lines")


if __name__ == "__main__":
    main()
