-- A commit on many shards (see index/spread/counting.py): what a shard keeps of it between its steps. For record,
-- where KEYS 10 to 12 are then held, preparing and prepared; and for drop, which has the same keys.
--   held       hash: cluster that prepared commits hold open → HOLD. It is in none of the queues that close
--              clusters meanwhile.
--   preparing  sorted set: partition with a prepared commit → the server's clock (seconds)
--   prepared   hash of one partition: attempt, its number; call, the call as it was prepared; clusters, their
--              ids one after the other
-- The partition's field attempt is the number of the latest attempt that was prepared, decided or given up
-- here. No earlier one is prepared or decided any more, so a request that comes late does nothing.

local MANY_CLUSTERS_AT = 13  -- in KEYS

local function number_of(fence, attempt)
  return string.format('%.0f:%.0f', fence, attempt)
end

local function is_later(fence, attempt, than)
  if not than then return true end
  local its_fence, its_attempt = string.match(than, '^(%d+):(%d+)$')
  its_fence = tonumber(its_fence)
  return fence > its_fence or (fence == its_fence and attempt > tonumber(its_attempt))
end

local function is_held(id)
  return call('HGET', KEYS[10], id) ~= false
end

local function is_prepared(fence, attempt)
  return call('HGET', KEYS[12], 'attempt') == number_of(fence, attempt)
end

-- Hold clusters open: they leave the queues.
local function hold(ids)
  if #ids == 0 then return end
  local held, recency, expiry, values = KEYS[10], KEYS[3], KEYS[2], {}
  local stored = call('HMGET', held, unpack(ids))
  local recencies, expiries = call('ZMSCORE', recency, unpack(ids)), call('ZMSCORE', expiry, unpack(ids))
  for i = 1, #ids do
    local holds, recency_us, expiry_us = 0, recencies[i] or NO_TIME_US, expiries[i] or NO_TIME_US
    if stored[i] then holds, recency_us, expiry_us = unpack_bytes(HOLD, stored[i]) end
    values[2 * i - 1], values[2 * i] = ids[i], pack_bytes(HOLD, holds + 1, recency_us, expiry_us)
  end
  call('HSET', held, unpack(values))
  call('ZREM', recency, unpack(ids))
  call('ZREM', expiry, unpack(ids))
  renew(held)
end

-- Forget a prepared commit. Clusters that no other one holds go back into the queues, with the scores that
-- they had: those are lower bounds.
local function release(name)
  local held, preparing, prepared, recency, expiry = KEYS[10], KEYS[11], KEYS[12], KEYS[3], KEYS[2]
  local packed, ids = call('HGET', prepared, 'clusters') or '', {}
  for at = 1, #packed, ID_BYTES do ids[#ids + 1] = sub(packed, at, at + ID_BYTES - 1) end
  call('DEL', prepared)
  call('ZREM', preparing, name)
  if #ids == 0 then return end
  local stored, free, values, recencies, expiries = call('HMGET', held, unpack(ids)), {}, {}, {}, {}
  for i = 1, #ids do
    local holds, recency_us, expiry_us
    if stored[i] then holds, recency_us, expiry_us = unpack_bytes(HOLD, stored[i]) end
    if holds and holds > 1 then
      values[#values + 1], values[#values + 2] = ids[i], pack_bytes(HOLD, holds - 1, recency_us, expiry_us)
    elseif holds then
      free[#free + 1] = ids[i]
      if recency_us ~= NO_TIME_US then recencies[#recencies + 1], recencies[#recencies + 2] = recency_us, ids[i] end
      if expiry_us ~= NO_TIME_US then expiries[#expiries + 1], expiries[#expiries + 2] = expiry_us, ids[i] end
    end
  end
  if #values > 0 then call('HSET', held, unpack(values)) end
  if #free > 0 then call('HDEL', held, unpack(free)) end
  if #recencies > 0 then call('ZADD', recency, unpack(recencies)) end
  if #expiries > 0 then call('ZADD', expiry, unpack(expiries)) end
  renew(recency)
  renew(expiry)
end

local function prepare(partition, fence, attempt, name, ids)
  local prepared, number = KEYS[12], number_of(fence, attempt)
  hold(ids)
  call('HSET', prepared, 'attempt', number, 'call', cmsgpack.pack({KEYS, ARGV}), 'clusters', table.concat(ids))
  call('ZADD', KEYS[11], string.format('%.0f', server_us / 1e6), name)
  call('HSET', partition, 'attempt', number)
  for i = 1, MANY_CLUSTERS_AT - 1 do renew(KEYS[i]) end
end

local function decide(partition, fence, attempt)
  local number = number_of(fence, attempt)
  call('HSET', partition, 'attempt', number, 'decided', number)
end
