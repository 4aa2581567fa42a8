#!/usr/bin/env bash
#
# capture.sh - record real logs of real programs, for the examples.
#
# Usage: capture.sh [--out DIR] [--keep] [--help]
#
#   --out DIR   where to write the *.log.gz files (default: this directory)
#   --keep      keep the temporary directory (a small Debian tree with all
#               the raw logs in it) and print its path
#   --help      print this text
#
# Every line of the result is written by a running program.  The script only
# starts the programs, gives them work, and breaks them on purpose:
#
#   packages      debootstrap, apt-get, dpkg, pip and Maven installing things
#   kafka         a KRaft cluster of 3 brokers: topics, load, consumer groups,
#                 ACL denials, kill -9, recovery, lost quorum, clean shutdown
#   kafka-clients the Kafka command line tools which load that cluster, also
#                 while brokers are dead
#   redis         a primary with 2 replicas and 3 sentinels, a cluster of 6:
#                 snapshots, AOF, failovers, kill -9, crash reports
#   postgresql    pgbench, constraint errors, deadlocks, failed logins, a
#                 killed backend, crash recovery, a standby and its promotion
#   nginx         access and error log: static files, a proxied backend, a
#                 dead backend, rate limits, bad requests
#   python-http   python3 -m http.server behind that nginx, with tracebacks of
#                 broken connections
#   syslog        rsyslog with sshd, sudo, su, cron, useradd, passwd
#
# Needs: Debian 12, root (it makes namespaces and a chroot), about 2.5 GB in
# /var/tmp, the network for packages, and java, mvn, python3 and debootstrap
# on the PATH (debootstrap is installed by apt-get when it is missing).
# Takes about 6 minutes on 2 cores; gives up after 20.
#
# Nothing but debootstrap is installed on the host, and nothing is left running:
# all programs run in a temporary Debian tree, in their own PID, mount, UTS
# (host name "demo") and, for the services, network namespace with only the
# loopback interface.

set -euo pipefail

SELF=$(readlink -f "${BASH_SOURCE[0]}")
HERE=$(dirname "$SELF")
# The Debian mirror that this machine uses itself, unless one is given.
MIRROR=${MIRROR:-$(sed -nE 's#^(deb .*|URIs: *)(https?://[^/ ]+).*#\2#p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)}
KAFKA_VERSION=4.1.0

say() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }
usage() { sed -n '3,/^$/{s/^# \{0,1\}//;p}' "$SELF"; }

# ---------------------------------------------------------------- helpers

# bounded SECONDS COMMAND...: run, never longer than that, failure allowed.
bounded() { timeout -k 2 "$@" || true; }

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

wait_port() { # PORT [SECONDS]
    local i
    for ((i = 0; i < ${2:-40} * 5; i++)); do
        port_open "$1" && return 0
        sleep 0.2
    done
    say "warning: port $1 did not open"
}

wait_gone() { # PID [SECONDS]
    local i
    for ((i = 0; i < ${2:-30} * 5; i++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.2
    done
    kill -9 "$1" 2>/dev/null || true
}

# ---------------------------------------------------------------- packages

SERVICES="redis-server redis-sentinel redis-tools nginx-light postgresql-15
    postgresql-contrib rsyslog cron sudo openssh-server openssh-client sshpass
    wget curl apache2-utils procps iproute2 python3 python3-venv python3-pip
    openjdk-17-jre-headless"
EXTRAS="git vim-tiny tmux tree jq sqlite3 lsof strace nano bc less file rsync
    zip unzip dnsutils socat make ruby tcl ncdu htop pkg-config gettext
    graphviz"

packages_host() { # WORK: the Debian tree, and the Kafka jars
    local work=$1 root=$1/rootfs
    say "packages: debootstrap"
    mkdir -p "$work/logs"
    debootstrap --variant=minbase bookworm "$root" "$MIRROR/debian" \
        >"$work/logs/debootstrap.log" 2>&1
    cat >"$root/etc/apt/sources.list" <<END
deb $MIRROR/debian bookworm main
deb $MIRROR/debian bookworm-updates main
deb $MIRROR/debian-security bookworm-security main
END
    # No service starts by itself in the tree.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    echo 'Dpkg::Use-Pty "0";' >"$root/etc/apt/apt.conf.d/00capture"
    echo demo >"$root/etc/hostname"
    echo '127.0.0.1 localhost demo' >"$root/etc/hosts"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp /etc/ssl/certs/ca-certificates.crt "$root/opt/ca.crt"
    cp "$SELF" "$root/opt/capture.sh"
    mount -t proc proc "$root/proc"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    mount -t tmpfs tmpfs "$root/dev/shm"

    say "packages: Maven fetches Kafka $KAFKA_VERSION"
    mkdir -p "$root/opt/kafka"
    cat >"$root/opt/kafka/pom.xml" <<END
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>demo</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId><version>$KAFKA_VERSION</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId><version>$KAFKA_VERSION</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
END
    (cd "$root/opt/kafka" && mvn -B -Dstyle.color=never \
        -Dmaven.repo.local="$root/opt/kafka/repository" \
        dependency:copy-dependencies -DoutputDirectory=lib) \
        >"$work/logs/maven.log" 2>&1
    rm -rf "$root/opt/kafka/repository"
}

packages_tree() { # inside the tree, with network
    local log=/var/log/capture
    mkdir -p $log
    say "packages: apt-get install of the services"
    # shellcheck disable=SC2086
    {
        apt-get update
        apt-get install -y --no-install-recommends $SERVICES
    } >$log/apt-1.log 2>&1
    say "packages: apt-get install, reinstall, purge, autoremove of others"
    # shellcheck disable=SC2086
    {
        apt-get install -y --no-install-recommends $EXTRAS
        apt-get install -y --reinstall tree jq bc
        apt-get install -y no-such-package || true
        apt-get purge -y ruby tcl graphviz dnsutils gettext strace
        apt-get autoremove -y --purge
    } >$log/apt-2.log 2>&1
    say "packages: pip install, also with failures"
    python3 -m venv /opt/venv
    export PIP_CERT=/opt/ca.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COLOR=1 PIP_NO_INPUT=1
    local pip="bounded 100 /opt/venv/bin/pip"
    {
        $pip install -v --progress-bar off flask requests rich pytest sqlalchemy celery
        $pip install -vv --progress-bar off --no-deps idna==3.7
        $pip install -v --progress-bar off --no-binary psycopg2 psycopg2
        $pip install -v no-such-distribution-at-all
        $pip install -v 'requests==2.31.0' 'urllib3<1.20'
        $pip install -v --progress-bar off --upgrade pip 'flask<3'
        $pip uninstall -v -y celery rich sqlalchemy
    } >$log/pip.log 2>&1
}

# ---------------------------------------------------------------- kafka

KLOG=/var/log/kafka
KPID=(0 0 0 0)
ALL=localhost:9091,localhost:9092,localhost:9093

kafka_config() {
    local n
    mkdir -p $KLOG /var/lib/kafka /etc/kafka
    cat >/etc/kafka/log4j2.properties <<'END'
status = warn
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.err.ref = err
END
    for n in 1 2 3; do
        cat >/etc/kafka/server-$n.properties <<END
process.roles=broker,controller
node.id=$n
controller.quorum.voters=1@localhost:19091,2@localhost:19092,3@localhost:19093
listeners=PLAINTEXT://127.0.0.1:909$n,SASL_PLAINTEXT://127.0.0.1:919$n,CONTROLLER://127.0.0.1:1909$n
advertised.listeners=PLAINTEXT://localhost:909$n,SASL_PLAINTEXT://localhost:919$n
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs=/var/lib/kafka/$n
num.network.threads=2
num.io.threads=4
num.partitions=3
default.replication.factor=3
min.insync.replicas=2
auto.create.topics.enable=false
offsets.topic.num.partitions=6
offsets.topic.replication.factor=3
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=5000
broker.heartbeat.interval.ms=1000
replica.lag.time.max.ms=6000
log.segment.bytes=1048576
log.retention.check.interval.ms=4000
log.initial.task.delay.ms=4000
log.cleaner.backoff.ms=3000
log.cleaner.dedupe.buffer.size=16777216
END
    done
}

kserver() { # N: start broker N
    local n=$1
    KAFKA=1 java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile=/etc/kafka/log4j2.properties \
        -cp '/opt/kafka/lib/*' kafka.Kafka /etc/kafka/server-"$n".properties \
        >>$KLOG/broker-"$n".log 2>&1 &
    KPID[n]=$!
    disown
}

kcli() { # SECONDS CLASS ARGS...: log and errors into the clients' log
    local t=$1
    shift
    bounded "$t" java -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile=/etc/kafka/log4j2.properties \
        -cp '/opt/kafka/lib/*' "$@" 2>>$KLOG/clients.log
}
kout() { kcli "$@" >>$KLOG/clients.log; } # the output is a report, keep it
kmute() { kcli "$@" >/dev/null; }         # the output is records, drop it

TOOLS=org.apache.kafka.tools
ktopic() { kout 30 $TOOLS.TopicCommand --bootstrap-server $ALL "$@"; }
kgroup() { kout 30 $TOOLS.consumer.group.ConsumerGroupCommand --bootstrap-server $ALL "$@"; }
kconfig() { kout 30 kafka.admin.ConfigCommand --bootstrap-server $ALL "$@"; }
kperf() { # SECONDS TOPIC RECORDS SIZE RATE [PROPERTIES...]
    local t=$1 topic=$2 records=$3 size=$4 rate=$5
    shift 5
    kout "$t" $TOOLS.ProducerPerformance --topic "$topic" --num-records "$records" \
        --record-size "$size" --throughput "$rate" \
        --producer-props bootstrap.servers=$ALL delivery.timeout.ms=12000 \
        request.timeout.ms=5000 "$@"
}
kconsume() { # SECONDS TOPIC GROUP [ARGS...]
    local t=$1 topic=$2 group=$3
    shift 3
    kmute "$t" $TOOLS.consumer.ConsoleConsumer --bootstrap-server $ALL \
        --topic "$topic" --group "$group" "$@"
}

story_kafka() {
    local n id i jobs=()
    kafka_config
    say "kafka: format and start 3 nodes"
    id=$(java -cp '/opt/kafka/lib/*' kafka.tools.StorageTool random-uuid 2>/dev/null)
    for n in 1 2 3; do
        kcli 20 kafka.tools.StorageTool format -t "$id" -c /etc/kafka/server-$n.properties \
            >>$KLOG/broker-$n.log
        kserver $n
    done
    for n in 1 2 3; do wait_port 909$n; done
    sleep 2

    say "kafka: topics, users, ACLs"
    ktopic --create --topic orders --partitions 6 --replication-factor 3
    ktopic --create --topic payments --partitions 3 --replication-factor 3
    ktopic --create --topic clicks --partitions 8 --replication-factor 2 \
        --config retention.bytes=2097152
    ktopic --create --topic balances --partitions 2 --replication-factor 3 \
        --config cleanup.policy=compact --config min.cleanable.dirty.ratio=0.01
    ktopic --create --topic orders --partitions 6 --replication-factor 3 # exists
    ktopic --create --topic too-many --partitions 1 --replication-factor 5
    kconfig --alter --add-config 'SCRAM-SHA-512=[password=demo-only]' \
        --entity-type users --entity-name alice
    kout 30 $TOOLS.AclCommand --bootstrap-server $ALL --add --allow-principal User:alice \
        --operation Write --operation Describe --topic orders

    say "kafka: load and consumer groups"
    kperf 60 orders 30000 300 6000 client.id=orders-writer &
    jobs+=($!)
    kconsume 25 orders billing --from-beginning --timeout-ms 15000 &
    jobs+=($!)
    kconsume 20 orders billing &
    jobs+=($!)
    kperf 60 clicks 40000 700 9000 client.id=clicks-writer compression.type=lz4 &
    jobs+=($!)
    wait "${jobs[@]}"
    jobs=()
    kperf 60 payments 4000 200 1500 client.id=payments-writer transactional.id=pay-1 \
        transaction.timeout.ms=20000
    seq 1 3000 | sed 's/\(.*\)\(.\)$/k\2:\1/' | kmute 30 $TOOLS.ConsoleProducer \
        --bootstrap-server $ALL --topic balances --property parse.key=true \
        --property key.separator=:
    kout 40 $TOOLS.VerifiableConsumer --bootstrap-server $ALL --topic payments \
        --group-id audit --max-messages 500 --session-timeout 6000 --reset-policy earliest >/dev/null
    for i in 1 2 3; do
        kmute 14 $TOOLS.VerifiableConsumer --bootstrap-server $ALL --topic orders \
            --group-id shipping --group-instance-id "shipper-$i" --session-timeout 6000 \
            --reset-policy earliest &
        jobs+=($!)
    done
    kmute 12 $TOOLS.VerifiableConsumer --bootstrap-server $ALL --topic clicks \
        --group-id heatmap --group-protocol consumer --reset-policy earliest &
    jobs+=($!)
    sleep 8
    kgroup --describe --all-groups
    wait "${jobs[@]}"
    jobs=()

    say "kafka: denials, bad clients, unknown topics"
    cat >/etc/kafka/alice.properties <<'END'
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="demo-only";
END
    sed 's/demo-only/wrong/' /etc/kafka/alice.properties >/etc/kafka/wrong.properties
    seq 1 20 | kmute 15 $TOOLS.ConsoleProducer --bootstrap-server localhost:9191 \
        --topic orders --producer.config /etc/kafka/alice.properties
    kmute 12 $TOOLS.consumer.ConsoleConsumer --bootstrap-server localhost:9191 --topic payments \
        --group alices --consumer.config /etc/kafka/alice.properties --timeout-ms 4000
    seq 1 3 | kmute 12 $TOOLS.ConsoleProducer --bootstrap-server localhost:9192 \
        --topic orders --producer.config /etc/kafka/wrong.properties
    kconsume 8 no-such-topic lost --timeout-ms 4000
    kmute 6 $TOOLS.consumer.ConsoleConsumer --bootstrap-server localhost:9193 --topic orders
    head -c 3000000 /dev/zero | tr '\0' x | kmute 12 $TOOLS.ConsoleProducer \
        --bootstrap-server $ALL --topic orders
    curl -s -m 2 http://localhost:9091/ >/dev/null || true
    curl -s -m 2 http://localhost:9093/topics/orders >/dev/null || true
    curl -sk -m 2 https://localhost:9092/ >/dev/null || true

    say "kafka: kill -9 of broker 2 under load, recovery"
    kperf 40 orders 20000 300 1500 client.id=orders-writer &
    jobs+=($!)
    kconsume 30 orders billing --timeout-ms 12000 &
    jobs+=($!)
    sleep 6
    kill -9 "${KPID[2]}"
    sleep 9
    kserver 2
    wait_port 9092
    wait "${jobs[@]}"
    jobs=()
    kout 20 $TOOLS.LeaderElectionCommand --bootstrap-server $ALL \
        --election-type PREFERRED --all-topic-partitions
    ktopic --alter --topic payments --partitions 6
    cat >/tmp/move.json <<'END'
{"version":1,"partitions":[
 {"topic":"clicks","partition":0,"replicas":[3,1]},
 {"topic":"clicks","partition":1,"replicas":[1,2]},
 {"topic":"clicks","partition":2,"replicas":[2,3]},
 {"topic":"clicks","partition":3,"replicas":[3,2]}]}
END
    kout 30 $TOOLS.reassign.ReassignPartitionsCommand --bootstrap-server $ALL \
        --reassignment-json-file /tmp/move.json --execute
    kconfig --alter --entity-type topics --entity-name orders \
        --add-config retention.bytes=1048576,segment.bytes=1048576
    kgroup --reset-offsets --group billing --topic orders --to-earliest --execute
    kgroup --delete --group lost
    ktopic --delete --topic balances

    say "kafka: damaged segment of broker 3, kill -9, recovery"
    kill -9 "${KPID[3]}"
    sleep 1
    for i in /var/lib/kafka/3/payments-*/00000000000000000000.log; do
        head -c 57 /dev/urandom >>"$i"
    done
    kperf 25 payments 3000 200 600 acks=all &
    jobs+=($!)
    kserver 3
    wait_port 9093
    wait "${jobs[@]}"
    jobs=()
    sleep 4

    say "kafka: lost quorum"
    kill -9 "${KPID[2]}" "${KPID[3]}"
    ktopic --create --topic nobody-decides --partitions 1 --replication-factor 1 &
    jobs+=($!)
    kperf 25 payments 60 200 20 acks=all max.block.ms=6000 &
    jobs+=($!)
    kconsume 16 orders shipping --timeout-ms 9000 &
    jobs+=($!)
    wait "${jobs[@]}"
    jobs=()
    kserver 2
    kserver 3
    wait_port 9092
    wait_port 9093
    sleep 3
    ktopic --describe

    say "kafka: log directory of broker 2 taken away"
    rm -rf /var/lib/kafka/2/clicks-* /var/lib/kafka/2/orders-*
    kperf 25 clicks 900 700 150 client.id=clicks-writer &
    jobs+=($!)
    kperf 25 orders 6000 700 1000 client.id=orders-writer &
    jobs+=($!)
    wait "${jobs[@]}"
    jobs=()

    say "kafka: clean stop, clients of a dead cluster"
    kconsume 20 orders billing &
    jobs+=($!)
    sleep 4
    for n in 3 2 1; do
        kill "${KPID[n]}" 2>/dev/null || true
        wait_gone "${KPID[n]}" 25
    done
    wait "${jobs[@]}"
    printf 'request.timeout.ms=800\ndefault.api.timeout.ms=1200\n' >/etc/kafka/hasty.properties
    ktopic --list --command-config /etc/kafka/hasty.properties
    kgroup --describe --group billing --timeout 1200 --command-config /etc/kafka/hasty.properties
    kconfig --describe --entity-type topics --command-config /etc/kafka/hasty.properties
    kout 20 $TOOLS.MetadataQuorumCommand --bootstrap-server $ALL \
        --command-config /etc/kafka/hasty.properties describe --status
    kperf 12 orders 20 100 10 max.block.ms=3000
    kconsume 6 orders billing --timeout-ms 4000
    say "kafka: done"
}

# ---------------------------------------------------------------- redis

RLOG=/var/log/redis
as_redis() { setpriv --reuid=redis --regid=redis --clear-groups "$@"; }

redis_start() { # PORT [ARGS...]
    local port=$1
    shift
    mkdir -p /var/lib/redis/"$port" && chown -R redis:redis /var/lib/redis $RLOG
    as_redis redis-server --port "$port" --bind 127.0.0.1 --dir /var/lib/redis/"$port" \
        --loglevel verbose --logfile $RLOG/redis-"$port".log --save '4 50' \
        --appendonly yes --enable-debug-command local --repl-diskless-sync-delay 0 \
        --pidfile /var/lib/redis/"$port"/pid "$@" >/dev/null 2>&1 &
    wait_port "$port" "${REDIS_WAIT:-10}"
}
redis_kill() { # PORT [SIGNAL]
    local pid
    pid=$(pgrep -f "redis-server 127.0.0.1:$1( |\$)" | head -1) || return 0
    kill "${2:--9}" "$pid"
    wait_gone "$pid" 8
}
rcli() { bounded 8 redis-cli "$@" >/dev/null 2>&1; }
rbench() { bounded 20 redis-benchmark -q "$@" >/dev/null 2>&1; }

story_redis() {
    local p
    mkdir -p $RLOG /etc/redis-demo
    say "redis: primary, replicas, sentinels"
    redis_start 6379
    redis_start 6380 --replicaof '127.0.0.1 6379'
    redis_start 6381 --replicaof '127.0.0.1 6379'
    for p in 26379 26380 26381; do
        cat >/etc/redis-demo/$p.conf <<END
port $p
bind 127.0.0.1
dir /var/lib/redis
loglevel verbose
logfile $RLOG/sentinel-$p.log
sentinel monitor main 127.0.0.1 6379 2
sentinel down-after-milliseconds main 2000
sentinel failover-timeout main 8000
sentinel parallel-syncs main 1
END
        chown -R redis:redis /etc/redis-demo
        as_redis redis-sentinel /etc/redis-demo/$p.conf >/dev/null 2>&1 &
    done
    sleep 2
    rbench -t set,get,incr -n 4000 -c 20 -r 5000 -d 120
    rbench -t lpush,rpush,lpop,sadd,hset -n 2000 -c 15 -r 5000 -d 300
    rcli bgsave
    sleep 1
    rcli bgrewriteaof
    rbench -t zadd,mset -n 2000 -c 6 -r 5000
    rcli debug populate 20000 item 60
    rcli bgrewriteaof

    say "redis: bad clients"
    curl -s -m 2 http://127.0.0.1:6379/ >/dev/null 2>&1 || true
    curl -s -m 2 -X POST -d x=1 http://127.0.0.1:6380/keys >/dev/null 2>&1 || true
    for p in '*1\r\n$-7\r\n' '*x\r\n' '*99999999999\r\n' '*1\r\nPING\r\n'; do
        # shellcheck disable=SC2059
        (exec 3<>/dev/tcp/127.0.0.1/6379 && printf "$p" >&3 && head -c 20 <&3 >/dev/null) \
            2>/dev/null || true
    done
    rcli config set client-output-buffer-limit 'pubsub 65536 32768 2'
    (
        exec 3<>/dev/tcp/127.0.0.1/6379
        printf 'SUBSCRIBE news\r\n' >&3
        sleep 6
    ) &
    (for p in $(seq 1 90); do
        printf 'PUBLISH news %s\r\n' "$(head -c 60000 /dev/zero | tr '\0' n)"
    done) | bounded 8 redis-cli >/dev/null 2>&1
    rcli config set timeout 1
    (exec 3<>/dev/tcp/127.0.0.1/6379 && sleep 4) || true
    rcli config set timeout 0
    rcli config set busy-reply-threshold 300
    rcli eval 'local t=redis.call("TIME")[1] while redis.call("TIME")[1]-t<3 do end' 0
    (sleep 3 | bounded 5 redis-cli monitor >/dev/null 2>&1) &
    rbench -t get -n 300 -c 5
    rcli client kill type normal skipme yes
    rcli client kill type replica
    sleep 1
    rcli config set maxmemory 3mb
    rbench -t set -n 500 -c 10 -r 5000 -d 1000
    rcli config set maxmemory-policy allkeys-lru
    rbench -t set -n 1500 -c 10 -r 5000 -d 1000
    rcli config set maxmemory 0

    say "redis: failed saves, killed replica, killed primary"
    chmod 500 /var/lib/redis/6380
    rcli -p 6380 bgsave
    sleep 1
    rcli -p 6380 bgrewriteaof
    sleep 1
    chmod 750 /var/lib/redis/6380
    redis_kill 6381
    rbench -t set -n 2000 -c 10 -r 5000 -d 200
    redis_start 6381 --replicaof '127.0.0.1 6379'
    rbench -t set,lpush -n 4000 -c 10 -r 5000 -d 200 &
    sleep 0.3
    redis_kill 6379
    sleep 5
    p=$(find /var/lib/redis/6379/appendonlydir -name '*.incr.aof' | sort | tail -1)
    truncate -s -7 "$p" || true
    redis_start 6379
    sleep 4
    rbench -p 6380 -t set,get -n 2000 -c 8 -r 5000
    rbench -p 6381 -t set,get -n 2000 -c 8 -r 5000
    rcli -p 26379 sentinel failover main
    sleep 5
    rcli -p 6379 debug reload
    rcli -p 6380 shutdown nosave
    head -c 3000 /dev/urandom >/tmp/noise
    for p in /var/lib/redis/6380/appendonlydir/*.base.rdb; do cp /tmp/noise "$p"; done
    REDIS_WAIT=2 redis_start 6380 2>/dev/null # refuses: bad file
    rm -rf /var/lib/redis/6380
    redis_start 6380 --replicaof '127.0.0.1 6379'
    sleep 2

    say "redis: cluster of 6"
    for p in 7001 7002 7003 7004 7005 7006; do
        redis_start $p --cluster-enabled yes --cluster-node-timeout 2000
    done
    bounded 30 redis-cli --cluster create 127.0.0.1:700{1,2,3,4,5,6} \
        --cluster-replicas 1 --cluster-yes >/dev/null 2>&1
    sleep 2
    rbench -p 7001 --cluster -t set,get -n 3000 -c 9 -r 5000
    redis_kill 7001
    sleep 6
    redis_start 7001 --cluster-enabled yes --cluster-node-timeout 2000
    sleep 3
    rcli -p 7001 cluster failover
    rcli -p 7005 cluster failover
    redis_kill 7002 -STOP
    sleep 1
    rbench -p 7003 --cluster -t set -n 1000 -c 6 -r 5000
    pkill -CONT -f 'redis-server 127.0.0.1:7002' || true
    sleep 3
    rcli -p 7004 cluster reset hard
    rcli -p 7003 flushall

    say "redis: crash reports"
    rcli -p 7006 debug segfault
    rcli -p 7003 debug panic
    rcli -p 6381 debug assert
    rcli -p 7005 eval 'return redis.call("NOSUCH")' 0
    sleep 3
    for p in 6379 6380 6381 7001 7002 7004 7005; do redis_kill $p -TERM; done
    pkill -f 'redis-sentinel' || true
    sleep 1
    say "redis: done"
}

# ---------------------------------------------------------------- postgresql

PBIN=/usr/lib/postgresql/15/bin
as_pg() {
    bounded 30 setpriv --reuid=postgres --regid=postgres --init-groups \
        env -C /var/lib/postgresql "$@"
}
pg() { as_pg psql -q -h 127.0.0.1 -U postgres "$@" >/dev/null 2>&1; }
pgbench_() { as_pg $PBIN/pgbench -h 127.0.0.1 -U postgres "$@" >/dev/null 2>&1; }

story_postgresql() {
    local d=/var/lib/postgresql/main s=/var/lib/postgresql/standby i
    say "postgresql: start, pgbench"
    mkdir -p /var/log/postgresql && chown postgres /var/log/postgresql
    as_pg $PBIN/initdb -D $d --auth=trust >/dev/null 2>&1
    cat >>$d/postgresql.conf <<'END'
listen_addresses = '127.0.0.1'
unix_socket_directories = '/tmp'
max_connections = 20
log_line_prefix = '%m [%p] %q%u@%d '
log_connections = on
log_disconnections = on
log_checkpoints = on
log_lock_waits = on
log_temp_files = 0
log_autovacuum_min_duration = 0
log_min_duration_statement = 40
log_replication_commands = on
deadlock_timeout = 100ms
autovacuum_naptime = 2s
checkpoint_timeout = 30s
max_wal_size = 32MB
min_wal_size = 32MB
work_mem = 64kB
END
    sed -i '1i host all carol 127.0.0.1/32 scram-sha-256\nhost nodb all 127.0.0.1/32 reject' \
        $d/pg_hba.conf
    as_pg $PBIN/pg_ctl -D $d -l /var/log/postgresql/main.log -w start >/dev/null
    pg -c 'create database bench'
    pgbench_ -i -s 1 bench
    pgbench_ -c 4 -C -t 60 bench
    pgbench_ -c 8 -T 5 bench
    as_pg env PGOPTIONS='-c log_statement=mod' \
        $PBIN/pgbench -h 127.0.0.1 -U postgres -c 3 -t 120 bench >/dev/null 2>&1
    as_pg env PGOPTIONS='-c log_duration=on' \
        $PBIN/pgbench -h 127.0.0.1 -U postgres -S -c 2 -t 150 -M prepared bench >/dev/null 2>&1

    say "postgresql: errors"
    pg bench <<'END'
create table customer (id int primary key, code text unique not null check (code like 'c%'));
create table invoice (id serial primary key, customer int references customer, amount numeric(6,2));
insert into customer select g, 'c-' || g from generate_series(1, 200) g;
END
    for i in $(seq 1 60); do
        pg bench <<END
insert into customer values ($i, 'c-other-$i');
insert into customer values ($((i + 1000)), 'c-$i');
insert into customer values ($((i + 2000)), 'nobody');
insert into invoice (customer, amount) values ($((i + 5000)), $i);
insert into invoice (customer, amount) values ($i, ${i}0000);
select amount / (id - id) from (values ($i, $i)) v (id, amount);
select nosuch from customer where id = $i;
select * from customer_$i;
selec $i;
select '$i-13-45'::date;
END
    done
    cat >/tmp/transfer.sql <<'END'
\set a random(1, 6)
\set b random(1, 6)
begin;
update pgbench_accounts set abalance = abalance + 1 where aid = :a;
select pg_sleep(0.02);
update pgbench_accounts set abalance = abalance - 1 where aid = :b;
commit;
END
    pgbench_ -c 6 -t 40 --max-tries 3 -f /tmp/transfer.sql bench
    for i in 1 2 3 4 5 6 7 8; do
        pg bench <<END
set statement_timeout = '${i}0ms';
select count(*) from pgbench_accounts a, pgbench_accounts b;
select aid, filler from pgbench_accounts order by filler, aid desc limit 5;
END
    done
    pg -c "create role carol login password 'demo-only'; create role dave login"
    for i in $(seq 1 12); do
        bounded 5 env PGPASSWORD=bad$i psql -h 127.0.0.1 -U carol bench -c 'select 1' >/dev/null 2>&1
        bounded 5 psql -h 127.0.0.1 -U nobody$i bench -c 'select 1' >/dev/null 2>&1
        bounded 5 psql -h 127.0.0.1 -U dave missing$i -c 'select 1' >/dev/null 2>&1
        bounded 5 psql -h 127.0.0.1 -U dave bench -c 'delete from invoice' >/dev/null 2>&1
    done
    bounded 5 psql -h 127.0.0.1 -U dave nodb -c 'select 1' >/dev/null 2>&1
    pgbench_ -c 40 -t 5 -S bench # more than max_connections
    curl -s -m 2 http://127.0.0.1:5432/ >/dev/null 2>&1 || true

    say "postgresql: standby, killed backend, crash recovery, promotion"
    as_pg $PBIN/pg_basebackup -h 127.0.0.1 -U postgres -D $s -R -c fast >/dev/null 2>&1
    echo 'port = 5433' >>$s/postgresql.conf
    as_pg $PBIN/pg_ctl -D $s -l /var/log/postgresql/standby.log -w start >/dev/null
    pgbench_ -c 4 -T 6 bench &
    sleep 2
    pg bench -c 'select pg_terminate_backend(pid) from pg_stat_activity where query like $$UPDATE%$$'
    sleep 1
    kill -9 "$(pgrep -f 'postgres: postgres bench' | head -1)" 2>/dev/null || true
    sleep 3
    pgbench_ -c 4 -C -t 40 bench
    bounded 10 psql -q -h 127.0.0.1 -p 5433 -U postgres bench -c 'delete from invoice' >/dev/null 2>&1
    pg bench -c 'vacuum (verbose, analyze) pgbench_accounts' -c 'checkpoint'
    kill -9 "$(head -1 $d/postmaster.pid)"
    sleep 3
    rm -f $d/postmaster.pid
    as_pg $PBIN/pg_ctl -D $d -l /var/log/postgresql/main.log -w start >/dev/null
    pgbench_ -c 2 -C -t 40 bench
    as_pg $PBIN/pg_ctl -D $d -m fast -w stop >/dev/null
    sleep 6
    as_pg $PBIN/pg_ctl -D $s -w promote >/dev/null
    as_pg $PBIN/pgbench -h 127.0.0.1 -p 5433 -U postgres -C -c 2 -t 40 bench >/dev/null 2>&1
    as_pg $PBIN/pg_ctl -D $s -m fast -w stop >/dev/null
    say "postgresql: done"
}

# ---------------------------------------------------------------- nginx

web_get() { bounded 5 curl -s -o /dev/null "$@"; }
crawl() { # SECONDS AGENT FROM URL
    bounded "$1" wget -q -r -l 4 -np --delete-after -P "/tmp/crawl-$RANDOM" -e robots=off \
        --bind-address "$3" -U "$2" "$4"
}

story_web() {
    local i jobs=() py
    say "nginx: start, crawl"
    mkdir -p /var/log/nginx /var/log/python-http /etc/nginx/demo
    htpasswd -bc /etc/nginx/demo/users alice demo-only >/dev/null 2>&1
    cat >/etc/nginx/demo.conf <<'END'
user www-data;
worker_processes 2;
pid /run/nginx-demo.pid;
error_log /var/log/nginx/error.log info;
events { worker_connections 256; }
http {
    include /etc/nginx/mime.types;
    access_log /var/log/nginx/access.log combined;
    limit_req_zone $binary_remote_addr zone=api:1m rate=20r/s;
    client_max_body_size 100k;
    server {
        listen 127.0.0.1:8080;
        root /usr/share;
        location / { autoindex on; }
        location /app/ { proxy_pass http://127.0.0.1:8001/; proxy_read_timeout 2s; }
        location /api/ { limit_req zone=api burst=5 nodelay; proxy_pass http://127.0.0.1:8001/; }
        location /dead/ { proxy_pass http://127.0.0.1:8002/; proxy_connect_timeout 1s; }
        location /private/ { auth_basic "private"; auth_basic_user_file demo/users; alias /usr/share/doc/; autoindex on; }
        location /deny/ { deny all; }
        location /loop/ { rewrite ^ /loop/x last; }
    }
}
END
    # The backend serves a part of the tree, 120 MB of it in one large file.
    mkdir -p /srv/www
    cp -r /usr/share/doc /srv/www/doc
    head -c 120000000 /dev/zero >/srv/www/large.bin
    python3 -u -m http.server 8001 --bind 127.0.0.1 --directory /srv/www \
        >/dev/null 2>>/var/log/python-http/http.log &
    py=$!
    disown
    nginx -c /etc/nginx/demo.conf
    wait_port 8080
    wait_port 8001
    crawl 14 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0' 127.0.0.11 http://127.0.0.1:8080/doc/ &
    jobs+=($!)
    crawl 9 'Wget/1.21.3' 127.0.0.12 http://127.0.0.1:8080/zoneinfo/ &
    jobs+=($!)
    crawl 14 'demo-crawler/0.1' 127.0.0.13 http://127.0.0.1:8080/app/doc/ &
    jobs+=($!)
    crawl 9 'Wget/1.21.3' 127.0.0.14 http://127.0.0.1:8080/perl/ &
    jobs+=($!)
    for i in $(seq 1 120); do
        web_get --interface 127.0.0.$((20 + i % 7)) http://127.0.0.1:8080/dead/job/"$i"
        web_get --interface 127.0.0.$((20 + i % 5)) "http://127.0.0.1:8080/missing/$((i * 37 % 101)).html?page=$i"
        web_get --interface 127.0.0.$((30 + i % 3)) -u "alice:bad$i" http://127.0.0.1:8080/private/
        web_get --interface 127.0.0.$((30 + i % 3)) -u mallory:x "http://127.0.0.1:8080/private/bash/"
        web_get -A 'Python-urllib/3.11' -e http://127.0.0.1:8080/doc/ "http://127.0.0.1:8080/app/doc/?id=$i"
        web_get -X POST -d "id=$i" http://127.0.0.1:8080/app/orders
        web_get -X DELETE "http://127.0.0.1:8080/app/orders/$i"
        web_get -X PUT "http://127.0.0.1:8080/doc/upload-$i.txt" -d x
    done
    wait "${jobs[@]}"
    jobs=()
    say "nginx: refusals, bad requests, broken connections"
    for i in 1 2 3 4 5; do
        head -c 300000 /dev/zero | web_get --data-binary @- http://127.0.0.1:8080/app/upload
        web_get http://127.0.0.1:8080/deny/"$i"
        web_get http://127.0.0.1:8080/loop/"$i"
        web_get -u alice:demo-only http://127.0.0.1:8080/private/
        web_get --path-as-is http://127.0.0.1:8080/../../etc/passwd
        web_get -m 0.05 http://127.0.0.1:8080/app/large.bin
        web_get -m 0.05 http://127.0.0.1:8001/large.bin
        web_get -H "X-Long: $(head -c 40000 /dev/zero | tr '\0' a)" http://127.0.0.1:8080/
        printf 'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n' | bounded 2 curl -s telnet://127.0.0.1:8080 >/dev/null 2>&1
        printf 'HELLO %s\r\n\r\n' "$i" | bounded 1 curl -s telnet://127.0.0.1:8080 >/dev/null 2>&1
        printf 'HELLO\r\n\r\n' | bounded 1 curl -s telnet://127.0.0.1:8001 >/dev/null 2>&1
        printf 'GET /%s HTTP/9.9\r\n\r\n' "$i" | bounded 1 curl -s telnet://127.0.0.1:8001 >/dev/null 2>&1
        web_get -k https://127.0.0.1:8001/
    done
    bounded 10 ab -q -n 250 -c 8 http://127.0.0.1:8080/api/doc/ >/dev/null 2>&1
    bounded 10 ab -q -n 150 -c 4 http://127.0.0.1:8080/doc/bash/copyright >/dev/null 2>&1
    kill -STOP $py # backend hangs
    for i in 1 2 3; do web_get -m 4 http://127.0.0.1:8080/app/slow/"$i"; done
    kill -9 $py # and dies
    for i in $(seq 1 30); do web_get http://127.0.0.1:8080/app/doc/"$i"; done
    nginx -c /etc/nginx/demo.conf -s reload 2>/dev/null
    sleep 1
    nginx -c /etc/nginx/demo.conf -s reopen 2>/dev/null
    nginx -c /etc/nginx/demo.conf -s quit 2>/dev/null
    sleep 1
    say "nginx: done"
}

# ---------------------------------------------------------------- syslog

story_syslog() {
    local i u sshd ssh
    say "syslog: rsyslogd, sshd, cron"
    cat >/etc/rsyslog-demo.conf <<'END'
module(load="imuxsock")
module(load="builtin:omfile" Template="RSYSLOG_TraditionalFileFormat")
*.* /var/log/demo-syslog
END
    rsyslogd -n -f /etc/rsyslog-demo.conf -i /run/rsyslogd-demo.pid &
    sleep 1
    mkdir -p /run/sshd /tmp/keys
    ssh-keygen -A >/dev/null 2>&1
    /usr/sbin/sshd -D -p 2222 -o ListenAddress=127.0.0.1 -o LogLevel=VERBOSE \
        -o MaxAuthTries=3 -o MaxStartups=30 -o LoginGraceTime=4 -o DenyUsers=eve &
    sshd=$!
    disown
    cron -f &
    wait_port 2222
    for u in alice bob carol eve deploy; do
        useradd -m -s /bin/bash "$u"
        echo "$u:demo-only" | chpasswd
    done
    groupadd operators
    usermod -aG operators,sudo alice
    usermod -aG operators bob
    ssh-keygen -q -t ed25519 -N '' -C demo -f /tmp/keys/good
    ssh-keygen -q -t rsa -N '' -C demo -f /tmp/keys/other
    for u in alice deploy; do
        install -d -m 700 -o $u -g $u /home/$u/.ssh
        install -m 600 -o $u -g $u /tmp/keys/good.pub /home/$u/.ssh/authorized_keys
        printf '* * * * * /bin/true\n* * * * * /bin/ls /nonexistent\n' | crontab -u $u -
    done
    ssh="ssh -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
        -o ConnectTimeout=5 -o LogLevel=QUIET -o IdentitiesOnly=yes"
    for i in $(seq 1 45); do
        for u in alice deploy; do
            bounded 6 $ssh -i /tmp/keys/good -b 127.0.0.$((40 + i % 9)) $u@127.0.0.1 true >/dev/null 2>&1
        done
        bounded 6 $ssh -i /tmp/keys/other -o BatchMode=yes bob@127.0.0.1 true >/dev/null 2>&1
        bounded 6 $ssh -i /tmp/keys/other -o BatchMode=yes -b 127.0.0.$((50 + i % 5)) user"$i"@127.0.0.1 true >/dev/null 2>&1
        if ((i % 4 == 0)); then
            bounded 7 sshpass -p "bad$i" $ssh -o PubkeyAuthentication=no admin@127.0.0.1 true >/dev/null 2>&1 &
            bounded 7 sshpass -p "bad$i" $ssh -o PubkeyAuthentication=no bob@127.0.0.1 true >/dev/null 2>&1 &
            bounded 7 sshpass -p demo-only $ssh -o PubkeyAuthentication=no carol@127.0.0.1 id >/dev/null 2>&1 &
            bounded 7 sshpass -p demo-only $ssh -o PubkeyAuthentication=no eve@127.0.0.1 id >/dev/null 2>&1 &
            bounded 7 sshpass -p "$i" $ssh -o PubkeyAuthentication=no -b 127.0.0.66 root@127.0.0.1 id >/dev/null 2>&1 &
            bounded 2 curl -s http://127.0.0.1:2222/ >/dev/null 2>&1 &
            bounded 2 $ssh -c aes128-cbc alice@127.0.0.1 true >/dev/null 2>&1 &
            bounded 2 $ssh -o KexAlgorithms=diffie-hellman-group1-sha1 alice@127.0.0.1 true >/dev/null 2>&1 &
            (printf 'SSH-2.0-scanner\r\n' | bounded 2 curl -s telnet://127.0.0.1:2222 >/dev/null 2>&1) &
        fi
    done
    (exec 3<>/dev/tcp/127.0.0.1/2222 && sleep 6) & # no word until the grace time ends
    say "syslog: sudo, su, accounts"
    for i in $(seq 1 15); do
        echo demo-only | bounded 5 setpriv --reuid=alice --regid=alice --init-groups env -C /home/alice sudo -S -k ls "/srv/$i" >/dev/null 2>&1
        echo "bad$i" | bounded 7 setpriv --reuid=bob --regid=bob --init-groups env -C /home/bob sudo -S -k cat /etc/shadow >/dev/null 2>&1 &
        echo "bad$i" | bounded 5 setpriv --reuid=bob --regid=bob --init-groups su - carol -c id >/dev/null 2>&1 &
        bounded 5 su - deploy -c true >/dev/null 2>&1
        useradd "temp$i" && usermod -L -e 1 "temp$i" && gpasswd -a "temp$i" operators >/dev/null && userdel "temp$i"
    done
    sleep 8
    i=$((61 - 10#$(date +%S))) # let cron run once more
    sleep "$i"
    sleep 2
    kill $sshd
    pkill -x cron || true
    kill "$(cat /run/rsyslogd-demo.pid)"
    sleep 1
    say "syslog: done"
}

# ---------------------------------------------------------------- the frame

story() { # run one story with a limit of time, in the tree
    timeout -k 5 "$1" bash /opt/capture.sh --inside "story_$2" ||
        say "warning: story $2 ended with status $?"
}

services_tree() { # inside the tree, in an empty network namespace
    ip link set lo up
    rm -f /var/log/nginx/* /var/log/redis/* /var/log/postgresql/*
    story 480 kafka &
    story 200 redis
    story 120 postgresql
    story 120 web
    story 200 syslog
    wait
}

assemble() { # WORK OUT: one file for each program
    local work=$1 out=$2 root=$1/rootfs l=$1/rootfs/var/log name
    mkdir -p "$work/out" "$out"
    cat "$work"/logs/debootstrap.log "$l"/capture/apt-1.log "$l"/dpkg.log \
        "$l"/capture/apt-2.log "$work"/logs/maven.log "$l"/capture/pip.log >"$work/out/packages"
    cat "$l"/kafka/broker-*.log >"$work/out/kafka"
    cat "$l"/kafka/clients.log >"$work/out/kafka-clients"
    cat "$l"/redis/*.log >"$work/out/redis"
    cat "$l"/postgresql/*.log >"$work/out/postgresql"
    cat "$l"/nginx/access.log "$l"/nginx/error.log >"$work/out/nginx"
    cat "$l"/python-http/http.log >"$work/out/python-http"
    cat "$l"/demo-syslog >"$work/out/syslog"
    for name in packages kafka kafka-clients redis postgresql nginx python-http syslog; do
        mirrors=()
        [[ $name == packages ]] && mirrors=(--mirrors)
        python3 "$HERE/sanitise.py" --root "$root" --work "$work" "${mirrors[@]}" \
            <"$work/out/$name" >"$work/out/$name.log"
        gzip -9n <"$work/out/$name.log" >"$out/$name.log.gz"
        printf '%8d lines %10d bytes %8d compressed  %s\n' \
            "$(wc -l <"$work/out/$name.log")" "$(wc -c <"$work/out/$name.log")" \
            "$(wc -c <"$out/$name.log.gz")" "$name.log.gz"
    done
    chroot "$root" dpkg-query -W redis-server postgresql-15 nginx openssh-server sudo cron \
        rsyslog python3.11 openjdk-17-jre-headless dpkg apt
}

clean_env() { # a small, neutral environment; only what reaches the network
    local v keep=()
    for v in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
        [[ -n ${!v:-} ]] && keep+=("$v=${!v}")
    done
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/demo LANG=C.UTF-8 TZ=UTC \
        DEBIAN_FRONTEND=noninteractive MIRROR="$MIRROR" "${keep[@]}" "$@"
}

run_all() { # WORK OUT, in PID, mount, UTS and IPC namespaces of its own
    local work=$1 out=$2
    hostname demo
    renice -n 10 $$ >/dev/null
    packages_host "$work"
    clean_env chroot "$work/rootfs" bash /opt/capture.sh --inside packages_tree
    clean_env unshare --net chroot "$work/rootfs" bash /opt/capture.sh --inside services_tree
    assemble "$work" "$out"
}

main() {
    local dest=$HERE retain=0
    while (($#)); do
        case $1 in
        --inside)
            shift
            cd /
            "$@"
            return
            ;;
        --out)
            dest=$(readlink -f "$2")
            shift
            ;;
        --keep) retain=1 ;;
        -h | --help)
            usage
            return
            ;;
        *)
            usage >&2
            return 2
            ;;
        esac
        shift
    done
    [[ $(id -u) == 0 ]] || { say "must be root"; return 1; }
    local tool
    for tool in java mvn python3 apt-get unshare; do
        command -v $tool >/dev/null || { say "$tool is missing"; return 1; }
    done
    command -v debootstrap >/dev/null ||
        apt-get install -y debootstrap >/dev/null ||
        { apt-get update >/dev/null && apt-get install -y debootstrap >/dev/null; }

    WORK=$(mktemp -d /var/tmp/capture.XXXXXX)
    CHILD=
    KEEP=$retain
    cleanup() {
        trap - EXIT
        # --kill-child: everything in the namespaces dies with this one.
        [[ -z $CHILD ]] || kill "$CHILD" 2>/dev/null || true
        [[ -z $CHILD ]] || wait "$CHILD" 2>/dev/null || true
        if ((KEEP)); then say "kept: $WORK"; else rm -rf --one-file-system "$WORK"; fi
    }
    trap cleanup EXIT
    trap 'exit 130' INT TERM HUP
    timeout -k 5 1200 unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc \
        bash "$SELF" --inside run_all "$WORK" "$dest" &
    CHILD=$!
    wait "$CHILD"
    CHILD=
    say "done in $SECONDS s"
}

main "$@"
