-- Events of a cluster that were chosen by chance (engine/sampling.py). For resolve, record and claim.

-- The fields of the values of a cluster that hold events chosen by chance: SAMPLED and the event's
-- priority.
local function sampled_fields(key)
  local fields, found = call('HKEYS', key), {}
  for i = 1, #fields do
    if #fields[i] == SAMPLED_FIELD_BYTES and byte(fields[i]) == SAMPLED then found[#found + 1] = fields[i] end
  end
  return found
end

