-- Whether the data is what the caller knows: what most scripts check first. Comes before all other parts.

-- An error for the script to return if the data is not what the caller knows, else nil.
local function lost()
  if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
    return redis.error_reply('SDRESET the namespace was lost or created again')
  end
end
