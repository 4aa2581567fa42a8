#!lua
-- Note that words vary together in the pattern of a cluster that a query has opened.
-- KEYS  meta; then the query's own cluster; then its slice of exact hashes
-- ARGV  incarnation, settings (see _shard.lua), MATCHING, the combination of these words, nothing, the query and the
--       keys of its pattern, as for resolve.lua
-- Returns nothing. Nothing changes if the cluster is closed, has another first event, or shows a variable.
-- Cost  some twenty commands, and one for each cluster that is found there.
--       Posting lists, and the clusters that they name, are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local stored_meta = call('HMGET', META, 'kept', 'kept_for', 'shapes')
all_renewed = stored_meta[1] and not is_worn(tonumber(stored_meta[1])) and stored_meta[2] == ttl
listed_shapes = stored_meta[3] or ''

each_query(function(_, q)
  local c = load_cluster(q.id, q.key)
  local is_its = c and c[C_STATE] == OPEN and c[C_GROUP] == q.group and c[C_FINGERPRINT] == q.fingerprint
  if not is_its or c[C_LEARNED] ~= 0 or q.words == 0 or not has_room(c, 2) then return end
  combine(q, c, tonumber(ARGV[4]), owners_for(q))
  changed_keys[c.id] = c
end)
write_postings()
for _, c in pairs(changed_keys) do write_cluster(c) end
return redis.status_reply('OK')
