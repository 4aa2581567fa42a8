-- Events of a cluster that were chosen by chance (engine/sampling.py). For resolve, record, claim and
-- merge_fitting.

-- The fields of the values of a cluster that hold events chosen by chance: SAMPLED and the event's
-- priority.
local function sampled_fields(key)
  local fields, found = call('HKEYS', key), {}
  for i = 1, #fields do
    if #fields[i] == SAMPLED_FIELD_BYTES and byte(fields[i]) == SAMPLED then found[#found + 1] = fields[i] end
  end
  return found
end

-- Let the summaries of two clusters say that one has merged into the other. The caller writes both. Returns how
-- many events chosen by chance the other one has taken over.
local function count_merged(loser, root)
  loser[C_INTO], loser.is_changed_text = root.id, true
  if #root[C_MERGED] < MAX_MERGED_NAMED * MERGED_CLUSTER_BYTES then
    root[C_MERGED] = root[C_MERGED] .. pack_bytes(MERGED_CLUSTER, loser.id, loser[C_EVENTS])
    root.is_changed_text = true
  end
  local fields = loser[C_SAMPLED] > 0 and sampled_fields(values_key(loser.key)) or {}
  if #fields > 0 then
    local values, events = {}, call('HMGET', values_key(loser.key), unpack(fields))
    for i = 1, #fields do values[2 * i - 1], values[2 * i] = fields[i], events[i] end
    root[C_SAMPLED] = root[C_SAMPLED] + write_values(root, values)
  end
  return #fields
end
