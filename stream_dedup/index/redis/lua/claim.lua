#!lua flags=allow-oom
-- Take summaries that are due and lease them: those whose lease ran out, final ones, periodic ones.
-- Runs though the server's memory is full: once they are confirmed their clusters free it.
-- KEYS  meta, due, leases, recency
-- ARGV  incarnation, settings (see _shard.lua), how many at most
-- Returns whether more may be due though fewer than the limit are returned; and for each
--       {id, SNAPSHOT, merged clusters and group, position, representative, sample …, priority and
--       value of an event chosen by chance …}.
-- Cost  three commands a summary, one a sample, four if events were chosen by chance; at most LOOKS that
--       are leased are looked at.
--       The clusters are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, recency, limit = KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[3])
local LOOKS, CLAIMED = 300, 10

local taken = {}
if limit > 0 then
  taken = call('ZRANGE', leases, '-inf', now_us, 'BYSCORE', 'LIMIT', 0, limit)
end
local stream_us = number('stream')
local until_us = stream_us or '-inf'
local looks, more = LOOKS, 0
while #taken < limit do
  if looks <= 0 then
    more = 1
    break
  end
  local ready = call('ZRANGE', due, '-inf', until_us, 'BYSCORE', 'LIMIT', 0, limit - #taken)
  if #ready == 0 then break end
  looks = looks - #ready
  call('ZREM', due, unpack(ready))
  local leased = call('ZMSCORE', leases, unpack(ready))
  for i = 1, #ready do
    if not leased[i] then taken[#taken + 1] = ready[i] end
  end
end

-- Whether a cluster may have other fields than those that `stored` holds of it: besides these it has a, s if
-- it is in the tables, and its samples.
local function has_more(key, c, stored)
  local known = (c[C_SEARCHABLE] > 0 and 2 or 1) + c[C_SAMPLES]
  for i = 1, CLAIMED do
    if stored[i] then known = known + 1 end
  end
  return call('HLEN', key) ~= known
end

local answers, leased_until = {}, {}
for i = 1, #taken do
  local id = taken[i]
  local key = key_of(id)
  local stored = call('HMGET', key, 'n', 'z', 'p', 'g', 'r', 'm', 'i', 'y', 'f', 'o')
  local c = stored[1] and unpack_cluster(stored[1])
  if not c then  -- its key was lost; if it was not open, it waited for its final summary
    call('ZREM', leases, id)
    if not call('ZSCORE', recency, id) then add('waiting', -1) end
  else
    leased_until[#leased_until + 1] = now_us + lease_us
    leased_until[#leased_until + 1] = id
    c.key = key
    local worn = is_worn(c[C_RENEWED_S])
    if worn then keep_cluster(c) end
    local snapshot, names = stored[2], stored[8] or ''
    if not snapshot then
      c[C_REVISION], c[C_LEASED] = c[C_REVISION] + 1, 1
      local merged, into = stored[6] or '', c[C_STATE] == MERGED and stored[7] or string.rep('\0', ID_BYTES)
      snapshot = pack_bytes(SNAPSHOT, c[C_REVISION], c[C_EVENTS], c[C_EVENTS] - c[C_EMITTED], c[C_FIRST_US], c[C_LATEST_US],
        c[C_STATE], c[C_SAMPLES], c[C_LEARNED], #merged / MERGED_CLUSTER_BYTES, into,
        math.min(c[C_SINCE_US], c[C_LATEST_US])) .. merged .. (stored[4] or '')
      c[C_SINCE_US] = NO_TIME_US
      names = has_more(key, c, stored) and table.concat(sampled_fields(key)) or ''
      call('HSET', key, 'n', pack_cluster(c), 'z', snapshot)
      if names ~= '' then call('HSET', key, 'y', names) end
    elseif worn then
      call('HSET', key, 'n', pack_cluster(c))
    end
    local answer = {id, sub(snapshot, 1, SNAPSHOT_BYTES), sub(snapshot, SNAPSHOT_BYTES + 1), stored[3],
      stored[5] or ''}
    for s = 1, byte(snapshot, SNAPSHOT_SAMPLES_AT) do answer[5 + s] = call('HGET', key, s) or '' end
    if names ~= '' then
      local fields = {}
      for at = 1, #names, SAMPLED_FIELD_BYTES do fields[#fields + 1] = sub(names, at, at + SAMPLED_FIELD_BYTES - 1) end
      local events = call('HMGET', key, unpack(fields))
      for s = 1, #fields do answer[#answer + 1] = sub(fields[s], PRIORITY_AT) .. (events[s] or '') end
    end
    answers[#answers + 1] = answer
  end
end
if #answers > 0 then
  call('ZADD', leases, unpack(leased_until))
  keep(leases)
end
write_counters()
table.insert(answers, 1, more)
return answers
