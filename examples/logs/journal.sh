#!/bin/bash
# Writes journal.jsonl.gz: what programs said to a journal, as `journalctl -o json` shows it.
#
#   sudo ./journal.sh [FILE]
#
# A systemd-journald of its own runs in namespaces of its own, with /run for itself, so that no
# journal of the machine is read or written. Programs write to it through systemd-cat: a Redis
# server that is given work, and tar, which fails. Takes 15 s; needs root, systemd, redis-server, jq.
set -euo pipefail

out=$(realpath "${1:-"$(dirname "$0")/journal.jsonl.gz"}")
if [ -z "${INSIDE:-}" ]; then
    exec env INSIDE=1 unshare --mount --uts --net --propagation private "$0" "$out"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ip link set lo up
hostname demo
echo 00000000000000000000000000000001 > "$work/machine-id"
[ -e /etc/machine-id ] || touch /etc/machine-id
mount --bind "$work/machine-id" /etc/machine-id
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
/lib/systemd/systemd-journald &
journald=$!
until [ -S /run/systemd/journal/stdout ]; do sleep 0.1; done

cd "$work"
systemd-cat -t redis redis-server --port 6399 --save "1 1" --dir "$work" &
until redis-cli -p 6399 ping > /dev/null 2>&1; do sleep 0.1; done
for number in $(seq 12); do
    redis-cli -p 6399 set "key:$number" "$RANDOM" > /dev/null
    systemd-cat -t backup tar cf "$work/backup.tar" "/srv/data-$RANDOM" || true
    sleep 1.1
done
redis-cli -p 6399 shutdown nosave
sleep 0.5

# The kernel's lines, the cursor and the boot's id tell of the machine, not of these programs.
journalctl _TRANSPORT=stdout --no-pager -o json \
    --output-fields=MESSAGE,SYSLOG_IDENTIFIER,PRIORITY,_PID,_HOSTNAME \
    | jq -c 'del(.__CURSOR, ._BOOT_ID, .__SEQNUM, .__SEQNUM_ID)' | gzip -9n > "$out"
kill "$journald"
