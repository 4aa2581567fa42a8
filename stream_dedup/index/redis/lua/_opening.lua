-- Opening a cluster: what resolve and steps share. Comes after _shard.lua.

local opened_for

do  -- a script has room for 200 local names
  -- Closed clusters that wait for their final summary.
  local waiting_before
  local function waiting()
    waiting_before = waiting_before or number('waiting') or 0
    return waiting_before + (added.waiting or 0)
  end

  -- Open a cluster again: its window has passed, its final summary waits, or another text was at that position.
  local function open_again(c, due, garbage_key)
    if c[C_STATE] == OPEN then  -- closed first
      call('RPUSH', garbage_key, piece_of(c))
      add('fingerprints', -c[C_SEARCHABLE])
      if not is_provisional(c) then c[C_BEFORE] = EXPIRED end
    else  -- its final summary waits
      c[C_BEFORE] = c[C_STATE]
      add('waiting', -1)
      if c[C_DUE] == 1 then
        call('ZADD', due, c[C_EMITTED_US] + every_us, c.id)
      else
        call('ZREM', due, c.id)
      end
    end
  end

  -- A cluster that is not stored, or of which only a tombstone is.
  local function new_cluster(q, id, key, tombstone)
    local c = {q.first, q.last, q.first, q.first, 0, 0, q.first, 0, NO_TIME_US, 0, 0, 0, 0, 0, OPEN, 1, OPEN, 0, 0, 0,
      now_s, INCARNATION, NO_TEXTS, id = id, key = key}
    if tombstone and tombstone[C_UNTIL_US] >= now_us then  -- it was delivered again late
      c[C_REVISION], c[C_EVENTS], c[C_UNTIL_US] = tombstone[C_REVISION], tombstone[C_EVENTS], tombstone[C_UNTIL_US]
      c[C_EMITTED], c[C_BEFORE], c[C_BYTES] = c[C_EVENTS], GONE, tombstone[C_BYTES]
    end
    return c
  end

  -- The cluster with an id, opened for a query. One that is stored already is opened again, and its count and
  -- revision go on. Nil if it is new, and too many closed ones wait (`max_waiting` of index/base.py). The caller
  -- adds its names and its fingerprint, and writes it.
  function opened_for(q, id, key, searchable, earlier, due, garbage_key)
    local c = earlier
    if earlier and earlier[C_STATE] ~= GONE then
      open_again(c, due, garbage_key)
    elseif waiting() > math.max(MIN_WAITING, max_clusters) then
      return nil
    else
      c = new_cluster(q, id, key, earlier)
    end
    c[C_OPENED_US], c[C_LAST_US], c[C_STATE], c[C_NAMES], c[C_SEARCHABLE] = q.first, q.last, OPEN, 1, searchable
    c[C_GROUP], c[C_SKETCH], c[C_POSITION], c[C_RENEWED_S], c[C_PROVISIONAL] = q.group, q.sketch, q.position, now_s, 1
    return c
  end
end
