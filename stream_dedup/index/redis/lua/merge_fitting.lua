#!lua flags=allow-oom
-- Merge clusters that have closed, and whose final summary is claimed, into open ones whose patterns they fit
-- by words that vary together. Runs though the server's memory is full: what is closed has to be confirmed.
-- KEYS  meta; then each query's own cluster; then for each query its slice of exact hashes
-- ARGV  incarnation, settings (see _shard.lua), MATCHING, nothing, nothing, the queries and the keys of their
--       patterns, as for resolve.lua
-- Returns for each query, in order, the id of the cluster that goes on for its own, or zeros; fewer than were asked
--       when the budget of work was spent: ask again for the rest.
-- Cost  two commands if nothing is listed for its shape; else three, some four for each combination that is tried
--       and one for each cluster that is found there; two more for one that merges.
--       The clusters that are found, and posting lists, are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
listed_shapes = call('HGET', META, 'shapes') or ''

-- The cluster that goes on for a query's own; nil if it stays as it is.
local function merge(q)
  local c = load_cluster(q.id, q.key)
  if not c or c[C_STATE] == OPEN or c[C_SNAPSHOT] == '' then return nil end
  local SNAPSHOT_FIELDS = unpack_bytes(SNAPSHOT, c[C_SNAPSHOT])
  if state == OPEN or events ~= c[C_EVENTS] then return nil end  -- it was open then
  if state == MERGED then return into end
  if into ~= NOWHERE then return nil end  -- that is decided
  local root
  if c[C_GROUP] == q.group and c[C_LEARNED] == 0 and revision == 1 and q.words > 0 then
    local until_us = expires_us(c)
    root = find_fitting(q, owners_for(q, function(other)
      return not is_provisional(other) and other[C_OPENED_US] <= until_us
    end))
  end
  if root then
    count_merged(c, root)
    c[C_STATE], state, into = MERGED, MERGED, root.id
    write_cluster(root)
  else
    into = NEVER_MERGES
  end
  c[C_SNAPSHOT] = pack_bytes(SNAPSHOT, SNAPSHOT_FIELDS) .. sub(c[C_SNAPSHOT], SNAPSHOT_BYTES + 1)
  c.is_changed_text = true
  write_cluster(c)
  work = work + 3
  return root and root.id
end

local answers = {}
each_query(function(i, q) answers[i] = merge(q) or NOWHERE end)
return table.concat(answers)
