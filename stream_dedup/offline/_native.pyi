from stream_dedup.offline.reference import Components as Components
from stream_dedup.offline.reference import Part as Part
from stream_dedup.offline.reference import count_up_to as count_up_to
from stream_dedup.offline.reference import histogram as histogram
from stream_dedup.offline.reference import parse as parse
from stream_dedup.offline.reference import rows as rows
from stream_dedup.offline.reference import sort_distinct as sort_distinct
from stream_dedup.offline.reference import taken as taken
