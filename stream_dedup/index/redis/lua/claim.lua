#!lua flags=allow-oom
-- Take summaries that are due and lease them: those whose lease ran out, final ones, periodic ones.
-- Runs though the server's memory is full: once they are confirmed their clusters free it.
-- KEYS  meta, due, leases, recency
-- ARGV  incarnation, settings (see _shard.lua), how many at most
-- Returns whether more may be due though fewer than the limit are returned; the shapes of which combinations may
--       be listed (see _words.lua); and for each
--       {id, SNAPSHOT, merged clusters and group, position, representative, sample …, priority and
--       value of an event chosen by chance …}.
-- Cost  a command a summary, and one if it has samples, three if events were chosen by chance; at most
--       LOOKS that are leased are looked at.
--       The clusters are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, recency, limit = KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[3])
local LOOKS = 300

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

-- A summary that is claimed again may have been sent: it never changes from now on (see merge_fitting.lua).
local function settle(c)
  local SNAPSHOT_FIELDS = unpack_bytes(SNAPSHOT, c[C_SNAPSHOT])
  if state == OPEN or into ~= NOWHERE then return end
  into = NEVER_MERGES
  c[C_SNAPSHOT] = pack_bytes(SNAPSHOT, SNAPSHOT_FIELDS) .. sub(c[C_SNAPSHOT], SNAPSHOT_BYTES + 1)
  c.is_changed_text = true
end

local answers, leased_until = {}, {}
local cluster = load_clusters(taken)
for i = 1, #taken do
  local id, c = taken[i], cluster(i)
  if not c then  -- its key was lost; if it was not open, it waited for its final summary
    call('ZREM', leases, id)
    if not call('ZSCORE', recency, id) then add('waiting', -1) end
  else
    leased_until[#leased_until + 1] = now_us + lease_us
    leased_until[#leased_until + 1] = id
    local worn = is_worn(c[C_RENEWED_S])
    if worn then renew_cluster(c) end
    if c[C_SNAPSHOT] == '' then
      c[C_REVISION], c[C_LEASED] = c[C_REVISION] + 1, 1
      local merged, into = c[C_MERGED], c[C_STATE] == MERGED and c[C_INTO] or NOWHERE
      c[C_SNAPSHOT] = pack_bytes(SNAPSHOT, c[C_REVISION], c[C_EVENTS], c[C_EVENTS] - c[C_EMITTED], c[C_FIRST_US], c[C_LATEST_US],
        c[C_STATE], c[C_SAMPLES], c[C_LEARNED], #merged / MERGED_CLUSTER_BYTES, into,
        math.min(c[C_SINCE_US], c[C_LATEST_US])) .. merged .. c[C_GROUP]
      c[C_SINCE_US], c.is_changed_text = NO_TIME_US, true
      c[C_CHOSEN] = c[C_SAMPLED] > 0 and table.concat(sampled_fields(values_key(c.key))) or ''
      write_cluster(c)
    else
      settle(c)
      if worn or c.is_changed_text then write_cluster(c) end
    end
    local snapshot, chosen = c[C_SNAPSHOT], c[C_CHOSEN]
    local answer = {id, sub(snapshot, 1, SNAPSHOT_BYTES), sub(snapshot, SNAPSHOT_BYTES + 1), c[C_POSITION],
      c[C_REPRESENTATIVE]}
    local fields = {}
    local samples = byte(snapshot, SNAPSHOT_SAMPLES_AT)
    for s = 1, samples do fields[s] = s end
    for at = 1, #chosen, SAMPLED_FIELD_BYTES do fields[#fields + 1] = sub(chosen, at, at + SAMPLED_FIELD_BYTES - 1) end
    local values = #fields > 0 and call('HMGET', values_key(c.key), unpack(fields))
    for s = 1, #fields do
      answer[#answer + 1] = (s > samples and sub(fields[s], PRIORITY_AT) or '') .. (values[s] or '')
    end
    answers[#answers + 1] = answer
  end
end
if #answers > 0 then
  call('ZADD', leases, unpack(leased_until))
  renew(leases)
end
write_counters()
table.insert(answers, 1, call('HGET', META, 'shapes') or '')
table.insert(answers, 1, more)
return answers
