"""Real Redis for tests: a server, a cluster, and a group watched by Sentinel."""

from tests.services.redis_cluster import RedisCluster
from tests.services.redis_sentinel import RedisSentinel
from tests.services.redis_server import RedisServer, find_redis
from tests.services.resp import RedisReplyError, Reply

__all__ = [
    "RedisCluster",
    "RedisReplyError",
    "RedisSentinel",
    "RedisServer",
    "Reply",
    "find_redis",
]
