#!lua flags=allow-oom
-- Take summaries that are due and lease them: those whose lease ran out, final ones, periodic ones.
-- Runs though the server's memory is full: once they are confirmed their clusters free it.
-- KEYS  meta, due, leases
-- ARGV  incarnation, settings (see _shard.lua), how many at most
-- Returns for each {id, snapshot, position, group, representative ('' if not known), sample …}.
--       A snapshot is revision, count, new count, earliest and latest time (doubles), closing,
--       whether the representative was known, samples (bytes).
-- Cost  five commands a summary. The clusters are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, limit = KEYS[2], KEYS[3], tonumber(ARGV[3])

local taken = {}
if limit > 0 then
  taken = call('ZRANGE', leases, '-inf', now_us, 'BYSCORE', 'LIMIT', 0, limit)
end
local stream_us = number('stream')
local until_us = stream_us or '-inf'
while #taken < limit do
  local ready = call('ZRANGE', due, '-inf', until_us, 'BYSCORE', 'LIMIT', 0, limit - #taken)
  if #ready == 0 then break end
  for i = 1, #ready do
    call('ZREM', due, ready[i])
    if not call('ZSCORE', leases, ready[i]) then taken[#taken + 1] = ready[i] end
  end
end

local SNAPSHOT = '<dddddBBB'
local answers = {}
for i = 1, #taken do
  local id = taken[i]
  local key = key_of(id)
  local stored = call('HMGET', key, 'n', 'z', 'p', 'g', 'r')
  if not stored[1] then
    call('ZREM', leases, id)  -- its key was lost
  else
    call('ZADD', leases, now_us + lease_us, id)
    local snapshot = stored[2]
    if not snapshot then
      local c = numbers(stored[1])
      c[REVISION], c[ON_ITS_WAY] = c[REVISION] + 1, 1
      snapshot = pack_(SNAPSHOT, c[REVISION], c[COUNT], c[COUNT] - c[TOLD], c[FIRST], c[LATEST],
        c[CLOSING], stored[5] and 1 or 0, c[SAMPLES])
      call('HSET', key, 'n', packed(c), 'z', snapshot)
    end
    local known, samples = unpack_('<BB', snapshot, 42)
    local answer = {id, snapshot, stored[3], stored[4], known == 1 and stored[5] or ''}
    for s = 1, samples do answer[5 + s] = call('HGET', key, s) end
    keep(key)
    answers[#answers + 1] = answer
  end
end
if #answers > 0 then keep(leases) end
return answers
